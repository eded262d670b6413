import { connect, type Socket } from 'node:net';
import { ResponseReader } from './response-reader.ts';

const READ_BYTES = 65_536;
/** Shown of an unexpected response: its end, which contains the error message. */
const SHOWN_CHARACTERS = 300;

export interface Expected {
  readonly status: number;
  readonly bytes: number;
}

/** A connection that carries one request at a time. It reconnects when the target closes it. */
export class Connection {
  readonly #port: number;
  #socket: Socket;
  #reader = this.#newReader();
  #resolve: (answer: Expected) => void = () => {};
  #reject: (error: Error) => void = () => {};
  #onFirstByte: () => void = () => {};

  private constructor(port: number, onConnect: (error?: Error) => void) {
    this.#port = port;
    this.#socket = this.#connect(onConnect);
  }

  static open(port: number): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const connection = new Connection(port, (error) => (error ? reject(error) : resolve(connection)));
    });
  }

  ask(request: Buffer, onFirstByte: () => void = () => {}): Promise<Expected> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#onFirstByte = onFirstByte;
      this.#socket.write(request);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #connect(onConnect: (error?: Error) => void): Socket {
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    const callback = (bytes: number) => {
      const read = buffer.subarray(0, bytes);
      try {
        this.#reader.push(read);
      } catch (error) {
        const { message } = error as Error;
        this.#reject(new Error(`${message}: … ${read.toString('latin1').slice(-SHOWN_CHARACTERS)}`));
        this.close();
      }
      return true;
    };
    const socket = connect({ port: this.#port, host: '127.0.0.1', noDelay: true, onread: { buffer, callback } });
    socket.once('connect', () => onConnect());
    socket.on('error', (error) => {
      onConnect(error);
      if (socket === this.#socket) this.#reject(error);
    });
    socket.once('close', () => {
      if (socket === this.#socket) this.#reject(new Error('the target has closed a connection'));
    });
    return socket;
  }

  #newReader(): ResponseReader {
    return new ResponseReader(
      (status, bytes, isLast) => this.#answered(status, bytes, isLast),
      () => this.#onFirstByte(),
    );
  }

  #answered(status: number, bytes: number, isLast: boolean): void {
    if (!isLast) {
      this.#resolve({ status, bytes });
      return;
    }
    const former = this.#socket;
    const [resolve, reject] = [this.#resolve, this.#reject];
    this.#reader = this.#newReader();
    this.#socket = this.#connect((error) => (error ? reject(error) : resolve({ status, bytes })));
    former.destroy();
  }
}
