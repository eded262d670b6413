import { connect, type Socket } from 'node:net';
import { ResponseReader } from './response-reader.ts';

const READ_BYTES = 65_536;
/** Of an answer that is not as expected: its end, where an error says what it is. */
const SHOWN_CHARACTERS = 300;

/** An answer, and what every answer has to be. */
export interface Expected {
  readonly status: number;
  /** Of the body. */
  readonly bytes: number;
}

/** A kept-alive connection with one request at a time on it. */
export class Connection {
  readonly #socket: Socket;
  readonly #expected: Expected | undefined;
  readonly #reader = new ResponseReader(
    (status, bytes) => this.#answered(status, bytes),
    () => this.#onFirstByte(),
  );
  #resolve: (answer: Expected) => void = () => {};
  #reject: (error: Error) => void = () => {};
  #onFirstByte: () => void = () => {};

  private constructor(port: number, expected: Expected | undefined, onConnect: (error?: Error) => void) {
    this.#expected = expected;
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
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true, onread: { buffer, callback } });
    this.#socket.once('connect', () => onConnect());
    this.#socket.once('error', (error) => {
      onConnect(error);
      this.#reject(error);
    });
    this.#socket.once('close', () => this.#reject(new Error('the target has closed a connection')));
  }

  /** @param expected what every answer has to be; any answer will do without it */
  static open(port: number, expected?: Expected): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const connection = new Connection(port, expected, (error) => (error ? reject(error) : resolve(connection)));
    });
  }

  /** Sends a whole request and waits for the end of its answer; throws when that is not as expected. */
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

  #answered(status: number, bytes: number): void {
    const expected = this.#expected;
    if (expected && (status !== expected.status || bytes !== expected.bytes)) {
      throw new Error(`status ${status} with ${bytes} bytes instead of ${expected.status} with ${expected.bytes}`);
    }
    this.#resolve({ status, bytes });
  }
}
