const SUCCESS = 0;
const BAD_DESCRIPTOR = 8;
const NOT_SUPPORTED = 58;
const ROOT_DIRECTORY = 3;
const OUTPUT_FILE = 4;
const FILE_TYPE_DIRECTORY = 3;
const FILE_TYPE_REGULAR = 4;
const ALL_RIGHTS = 0xffff_ffff_ffff_ffffn;

/**
 * The part of WASI (snapshot preview 1) that flite uses: arguments, and one file in memory for every path. The program
 * reaches nothing else. What it prints is dropped, because it may quote the text (R40).
 */
export class WasiSandbox {
  #memory = new WebAssembly.Memory({ initial: 0 });
  #args: Uint8Array[] = [];
  #output: Uint8Array[] = [];

  readonly imports = {
    args_sizes_get: (count: number, size: number) => {
      this.#writeUint32(count, this.#args.length);
      this.#writeUint32(
        size,
        this.#args.reduce((sum, arg) => sum + arg.length, 0),
      );
      return SUCCESS;
    },
    args_get: (pointers: number, strings: number) => {
      let address = strings;
      for (const [i, arg] of this.#args.entries()) {
        this.#writeUint32(pointers + 4 * i, address);
        this.#bytes().set(arg, address);
        address += arg.length;
      }
      return SUCCESS;
    },
    clock_time_get: (_clock: number, _precision: bigint, time: number) => {
      this.#view().setBigUint64(time, 0n, true);
      return SUCCESS;
    },
    fd_prestat_get: (descriptor: number, prestat: number) => {
      if (descriptor !== ROOT_DIRECTORY) return BAD_DESCRIPTOR;
      this.#writeUint32(prestat, 0);
      this.#writeUint32(prestat + 4, 1);
      return SUCCESS;
    },
    fd_prestat_dir_name: (_descriptor: number, path: number) => {
      this.#bytes()[path] = '/'.charCodeAt(0);
      return SUCCESS;
    },
    fd_fdstat_get: (descriptor: number, stat: number) => {
      this.#bytes().fill(0, stat, stat + 8);
      this.#bytes()[stat] = descriptor === ROOT_DIRECTORY ? FILE_TYPE_DIRECTORY : FILE_TYPE_REGULAR;
      this.#view().setBigUint64(stat + 8, ALL_RIGHTS, true);
      this.#view().setBigUint64(stat + 16, ALL_RIGHTS, true);
      return SUCCESS;
    },
    fd_fdstat_set_flags: () => SUCCESS,
    path_open: (
      _directory: number,
      _lookup: number,
      _path: number,
      _pathLength: number,
      _flags: number,
      _rights: bigint,
      _inherited: bigint,
      _descriptorFlags: number,
      descriptor: number,
    ) => {
      this.#writeUint32(descriptor, OUTPUT_FILE);
      return SUCCESS;
    },
    fd_write: (descriptor: number, vectors: number, count: number, written: number) => {
      let total = 0;
      for (let i = 0; i < count; i++) {
        const start = this.#view().getUint32(vectors + 8 * i, true);
        const length = this.#view().getUint32(vectors + 8 * i + 4, true);
        if (descriptor === OUTPUT_FILE) this.#output.push(this.#bytes().slice(start, start + length));
        total += length;
      }
      this.#writeUint32(written, total);
      return SUCCESS;
    },
    fd_read: () => BAD_DESCRIPTOR,
    fd_seek: () => NOT_SUPPORTED,
    fd_close: () => SUCCESS,
    proc_exit: (code: number): never => {
      throw new Error(`the speech program of the voice server exited early with status ${code}`);
    },
  };

  prepare(memory: WebAssembly.Memory, args: readonly string[]): void {
    this.#memory = memory;
    this.#args = args.map((arg) => new TextEncoder().encode(`${arg}\0`));
    this.#output = [];
  }

  takeOutput(): Uint8Array {
    const file = Buffer.concat(this.#output);
    this.#output = [];
    return file;
  }

  // Growing memory gets a new buffer, so no view may be cached.
  #bytes(): Uint8Array {
    return new Uint8Array(this.#memory.buffer);
  }

  #view(): DataView {
    return new DataView(this.#memory.buffer);
  }

  #writeUint32(address: number, value: number): void {
    this.#view().setUint32(address, value, true);
  }
}
