const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
const LENGTH = /\r\ncontent-length: *(\d+)/i;
const CHUNKED = /\r\ntransfer-encoding: *chunked/i;
const LAST = /\r\nconnection: *close/i;

export type OnAnswer = (status: number, bodyBytes: number, isLast: boolean) => void;

/**
 * A minimal parser of HTTP/1.1 responses that leaves the CPU to the target. It reads bodies with a length and chunked
 * bodies without trailers. @throws on any other response
 */
export class ResponseReader {
  readonly #onAnswer: OnAnswer;
  readonly #onFirstByte: () => void;
  #state: 'head' | 'body' | 'chunk-size' | 'chunk' = 'head';
  #waiting: Buffer = Buffer.alloc(0);
  #status = 0;
  #bodyBytes = 0;
  /** Bytes left of the body, or of the chunk and its line end. */
  #left = 0;
  #isLast = false;
  #isLastAnswer = false;

  /** @param onFirstByte called at the first byte of each body */
  constructor(onAnswer: OnAnswer, onFirstByte: () => void = () => {}) {
    this.#onAnswer = onAnswer;
    this.#onFirstByte = onFirstByte;
  }

  /** Does not keep the buffer. */
  push(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length) {
      if (this.#state === 'body' || this.#state === 'chunk') at += this.#skip(bytes.length - at);
      else at += this.#line(bytes, at);
    }
  }

  /** Skips bytes of a body or chunk. @returns their number */
  #skip(available: number): number {
    const taken = Math.min(available, this.#left);
    this.#left -= taken;
    if (this.#left === 0) {
      if (this.#state === 'body' || this.#isLast) this.#end();
      else this.#state = 'chunk-size';
    }
    return taken;
  }

  /** Reads a head or a chunk size. @returns the number of bytes consumed */
  #line(bytes: Buffer, at: number): number {
    const end = this.#state === 'head' ? HEAD_END : LINE_END;
    const before = this.#waiting.length;
    const text = before === 0 ? bytes.subarray(at) : Buffer.concat([this.#waiting, bytes.subarray(at)]);
    const found = text.indexOf(end);
    if (found === -1) {
      this.#waiting = Buffer.from(text);
      return bytes.length - at;
    }
    this.#waiting = Buffer.alloc(0);
    if (this.#state === 'head') this.#readHead(text.toString('latin1', 0, found + 2));
    else this.#readSize(Number.parseInt(text.toString('latin1', 0, found), 16));
    return found + end.length - before;
  }

  #readHead(head: string): void {
    this.#status = Number(head.slice(9, 12));
    this.#bodyBytes = 0;
    this.#isLastAnswer = LAST.test(head);
    const length = LENGTH.exec(head)?.[1];
    if (length !== undefined) this.#readLength(Number(length));
    else if (CHUNKED.test(head)) this.#state = 'chunk-size';
    else throw new Error(`an answer without a length: ${head}`);
  }

  #readLength(length: number): void {
    this.#bodyBytes = length;
    this.#left = length;
    this.#state = 'body';
    if (length === 0) this.#end();
    else this.#onFirstByte();
  }

  #readSize(size: number): void {
    if (this.#bodyBytes === 0) this.#onFirstByte();
    this.#bodyBytes += size;
    this.#left = size + LINE_END.length;
    this.#isLast = size === 0;
    this.#state = 'chunk';
  }

  #end(): void {
    this.#state = 'head';
    this.#onAnswer(this.#status, this.#bodyBytes, this.#isLastAnswer);
  }
}
