/** libopus as the package brings it. Its own class writes beyond the memory it asked for once two of them live. */
declare module 'opusscript/build/opusscript_native_wasm.js' {
  interface Handler {
    /** Takes each byte of the samples as 16 bits; returns the length of the packet, negative for an error. */
    _encode(input: number, bytes: number, output: number, samples: number): number;
    _encoder_ctl(request: number, value: number): number;
  }
  interface Native {
    OpusScriptHandler: {
      new (sampleRate: number, channels: number, application: number): Handler;
      destroy_handler(handler: Handler): void;
    };
    readonly HEAPU8: Uint8Array;
    readonly HEAPU16: Uint16Array;
    _malloc(bytes: number): number;
    _free(address: number): void;
  }
  export default function load(): Native;
}
