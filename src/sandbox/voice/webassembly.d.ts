// The used part of the WebAssembly API, which neither the ES2023 library nor @types/node 20 declares.

declare namespace WebAssembly {
  class Module {
    private readonly module: never;
  }

  class Instance {
    constructor(module: Module, imports: Record<string, Record<string, (...args: never[]) => unknown>>);
    readonly exports: Record<string, unknown>;
  }

  class Memory {
    constructor(size: { initial: number });
    readonly buffer: ArrayBuffer;
  }

  function compile(bytes: Uint8Array): Promise<Module>;
}
