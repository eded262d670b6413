/** Bytes of a message's length, which counts itself. */
const LENGTH_BYTES = 4;

/** Cuts a stream of PostgreSQL's protocol into messages. The first one of a client has no type: it is told as ''. */
export class MessageReader {
  readonly #onMessage: (type: string, message: Buffer) => void;
  #waiting: Buffer = Buffer.alloc(0);
  #typeBytes: number;

  constructor(side: 'client' | 'server', onMessage: (type: string, message: Buffer) => void) {
    this.#typeBytes = side === 'client' ? 0 : 1;
    this.#onMessage = onMessage;
  }

  push(chunk: Buffer): void {
    this.#waiting = this.#waiting.length === 0 ? chunk : Buffer.concat([this.#waiting, chunk]);
    while (this.#waiting.length >= this.#typeBytes + LENGTH_BYTES) {
      const length = this.#typeBytes + this.#waiting.readInt32BE(this.#typeBytes);
      if (this.#waiting.length < length) return;
      const message = this.#waiting.subarray(0, length);
      const type = message.toString('latin1', 0, this.#typeBytes);
      this.#waiting = this.#waiting.subarray(length);
      this.#typeBytes = 1;
      this.#onMessage(type, message);
    }
  }
}
