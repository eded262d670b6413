import { connect, type Socket } from 'node:net';

export interface Expected {
  readonly status: number;
  readonly bytes: number;
}

interface Asked {
  readonly resolve: (answer: Expected) => void;
  readonly reject: (error: Error) => void;
  readonly onFirstByte: () => void;
}

const READ_BYTES = 65_536;
const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
const NOTHING = Buffer.alloc(0);
/** Shown of an unexpected response: its end, which contains the error message. */
const SHOWN_CHARACTERS = 300;

/**
 * A connection that carries one request at a time. It reconnects when the target closes it. It reads only status and
 * length of a response, so that it leaves the CPU to the target: bodies with a length, and chunked ones without trailers.
 */
export class Connection {
  readonly #port: number;
  #socket: Socket | undefined;
  #asked: Asked | undefined;
  #place: 'head' | 'chunk size' | 'chunk' | 'last chunk' | 'body' = 'head';
  /** The begun head, or line of a chunk size. */
  #waiting: Buffer = NOTHING;
  #status = 0;
  #bytes = 0;
  /** Bytes left of the body, or of the chunk and its line end. */
  #left = 0;
  #isClosing = false;

  constructor(port: number) {
    this.#port = port;
  }

  open(): Promise<void> {
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    const callback = (bytes: number) => {
      this.#read(buffer.subarray(0, bytes));
      return true;
    };
    return new Promise((resolve, reject) => {
      const socket = connect({ port: this.#port, host: '127.0.0.1', noDelay: true, onread: { buffer, callback } });
      this.#socket = socket;
      const fail = (error: Error) => {
        reject(error);
        if (socket === this.#socket) this.#asked?.reject(error);
      };
      socket.once('connect', () => resolve());
      socket.on('error', fail);
      socket.once('close', () => fail(new Error('the target has closed a connection')));
    });
  }

  ask(request: Buffer, onFirstByte: () => void): Promise<Expected> {
    return new Promise((resolve, reject) => {
      this.#asked = { resolve, reject, onFirstByte };
      this.#socket?.write(request);
    });
  }

  close(): void {
    this.#socket?.destroy();
  }

  #read(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; ) {
      if (this.#left > 0) {
        const skipped = Math.min(this.#left, bytes.length - at);
        this.#left -= skipped;
        at += skipped;
        if (this.#left > 0) return;
        if (this.#place === 'chunk') this.#place = 'chunk size';
        else this.#end();
        continue;
      }
      const end = this.#place === 'head' ? HEAD_END : LINE_END;
      const before = this.#waiting.length;
      const text = before === 0 ? bytes.subarray(at) : Buffer.concat([this.#waiting, bytes.subarray(at)]);
      const found = text.indexOf(end);
      if (found === -1) {
        this.#waiting = Buffer.from(text);
        return;
      }
      this.#waiting = NOTHING;
      at += found + end.length - before;
      const line = text.toString('latin1', 0, found);
      if (this.#place === 'head') this.#beginBody(line, bytes);
      else this.#beginChunk(Number.parseInt(line, 16));
    }
  }

  #beginBody(head: string, bytes: Buffer): void {
    this.#status = Number(head.slice(9, 12));
    this.#bytes = 0;
    this.#isClosing = /\r\nconnection: *close/i.test(head);
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    if (length !== undefined) {
      this.#place = 'body';
      this.#bytes = this.#left = Number(length);
      if (this.#left === 0) this.#end();
      else this.#asked?.onFirstByte();
    } else if (/\r\ntransfer-encoding: *chunked/i.test(head)) this.#place = 'chunk size';
    else {
      const shown = bytes.toString('latin1').slice(-SHOWN_CHARACTERS);
      this.#asked?.reject(new Error(`an answer without a length: … ${shown}`));
      this.close();
    }
  }

  #beginChunk(size: number): void {
    if (this.#bytes === 0) this.#asked?.onFirstByte();
    this.#bytes += size;
    this.#left = size + LINE_END.length;
    this.#place = size === 0 ? 'last chunk' : 'chunk';
  }

  #end(): void {
    this.#place = 'head';
    const [asked, answer] = [this.#asked, { status: this.#status, bytes: this.#bytes }];
    if (!this.#isClosing) asked?.resolve(answer);
    else {
      const former = this.#socket;
      this.open().then(() => asked?.resolve(answer), asked?.reject);
      former?.destroy();
    }
  }
}
