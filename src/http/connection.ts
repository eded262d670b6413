import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { linger } from './linger.ts';

/** Requests of one connection that are worked on, or whose answers are not sent yet, at a time. */
export const MAX_UNANSWERED = 16;
/** The next request of a connection is not begun while it has more than these bytes of answers to take. */
export const MAX_UNSENT_BYTES = 256 * 1024;
/** What a request and its answer occupy beside the answer's bytes. */
const ANSWER_OVERHEAD_BYTES = 8 * 1024;
/** What the callback of Node's parser returns to make it stop at that byte: HPE_PAUSED of llhttp. */
const PAUSE = 21;
/** Lets a parser that stopped behind the headers of a request tell that it has no body. */
const NO_BYTES = Buffer.alloc(1).subarray(0, 0);
/** Fastify begins their operations before a body is there. */
const BODILESS = new Set(['GET', 'HEAD']);

/** A socket of Node's HTTP server, with the parts that it keeps to itself. */
interface HttpSocket extends Socket {
  readonly parser: {
    /** Begins a request whose headers have arrived. */
    onIncoming(request: IncomingMessage, keepAlive: boolean): number;
    resume(): void;
    execute(bytes: Buffer): unknown;
  };
  /** Node itself has paused the connection, and resumes it once answers have been sent. */
  readonly _paused: boolean;
  readonly _handle: { readonly bytesWritten: number; readonly writeQueueSize: number } | null;
}

/** For how long an answer is followed whose client is silent afterwards. */
export const ARRIVAL_MS = 30_000;

/** An answer that was handed over, as long as there is no sign of its arrival. */
interface HandedOver {
  at: number;
  /** It was handed over in this turn of the event loop. */
  isNew: boolean;
  readonly listener: (hasArrived: boolean) => void;
}

const connections = new WeakMap<Socket, Connection>();

/** What a stop finds: nothing to wait for, a request that is still arriving, or one that is being answered. */
export type ConnectionState = 'idle' | 'arriving' | 'answering';

/**
 * A client's connection, whose requests wait for its answers: when too much is unanswered or unsent, the next request is
 * held as it is, and what follows it is not even parsed, since one read can bring thousands of requests.
 *
 *     headers of a request -> begun, answered, sent
 *     too many are unanswered -> held: the parser stops behind those headers, the rest stays bytes, reading pauses
 *     an answer was sent      -> the held request is begun, the parser goes on with the rest
 */
export class Connection {
  readonly socket: Socket;
  /** In their order. */
  #handedOver: HandedOver[] = [];
  /** What has to hold for anything to be sent. */
  readonly #conditions = new Set<() => boolean>();
  /** Answers of begun requests that are not sent wholly, in their order. */
  readonly #unanswered: ServerResponse[] = [];
  #begin: HttpSocket['parser']['onIncoming'];
  #held: { readonly request: IncomingMessage; readonly keepAlive: boolean } | undefined;
  #isUnconsumed = false;
  #isEnding = false;
  /** Bytes that had been read when the last answer was sent. */
  #readWhenAnswered = 0;
  #accepted = 0;
  #acceptedAt = 0;
  #idleSince = performance.now();

  constructor(socket: Socket) {
    this.socket = socket;
    connections.set(socket, this);
    const { parser } = socket as HttpSocket;
    this.#begin = parser.onIncoming;
    parser.onIncoming = (request, keepAlive) =>
      this.#isFull() ? this.#hold(request, keepAlive) : this.#begin(request, keepAlive);
    this.#askBeforeSending();
    // Before Node's own listener, which ends this side: after it nothing can be written.
    socket.prependListener('end', () => this.#clientEnded());
    // How Node closes a connection after its last answer.
    socket.destroySoon = () => {
      this.#isEnding = true;
      this.#findBroken();
      linger(socket, () => this.#handedOver.length > 0);
    };
  }

  /** The connection of a socket that is watched over. */
  static of(socket: Socket): Connection | undefined {
    return connections.get(socket);
  }

  /** A request waits for answers to be sent. */
  get isHolding(): boolean {
    return this.#held !== undefined;
  }

  /** Bytes of answers that the operating system has not taken. */
  get unsentBytes(): number {
    if (this.#unanswered.length === 0) return this.socket.writableLength;
    return this.#unanswered.reduce((sum, response) => sum + response.writableLength, 0);
  }

  /** An estimate of the memory that the client occupies by not reading. */
  get heldBytes(): number {
    const bytes = this.unsentBytes + this.socket.readableLength;
    return bytes === 0 ? 0 : bytes + this.#unanswered.length * ANSWER_OVERHEAD_BYTES;
  }

  get state(): ConnectionState {
    const [oldest] = this.#unanswered;
    if (!oldest) return this.socket.bytesRead > this.#readWhenAnswered ? 'arriving' : 'idle';
    const { req: request, headersSent } = oldest;
    return request.complete || headersSent || BODILESS.has(request.method ?? '') ? 'answering' : 'arriving';
  }

  /** Takes note of a request that has begun. */
  begun(response: ServerResponse): void {
    this.#haveArrived(true);
    this.#unanswered.push(response);
  }

  /**
   * Follows an answer that was handed over. It has arrived when the next request begins, when the connection closes
   * without an error, or when nothing has happened for long; it has not when the connection ends with an error, or when
   * the client had ended it before. What is read in the same turn of the event loop had come before.
   */
  onceArrived(listener: (hasArrived: boolean) => void, now = performance.now()): void {
    if (this.socket.readableEnded) {
      listener(false);
      return;
    }
    const answer = { at: now, isNew: true, listener };
    this.#handedOver.push(answer);
    setImmediate(() => {
      answer.isNew = false;
    });
  }

  /**
   * Asks each time before Node passes bytes on, and breaks the connection if not; until it is called off. What the kernel
   * does not take at once of them, libuv sends without asking again.
   */
  sendOnlyWhile(maySend: () => boolean): () => void {
    this.#conditions.add(maySend);
    return () => this.#conditions.delete(maySend);
  }

  /**
   * Lets those be that were handed over long ago, unless it is broken, which its close is about to tell.
   * @param now monotonic milliseconds
   */
  forgetHandedOver(now: number): void {
    if (this.socket.destroyed) return;
    while (this.#handedOver[0] && this.#handedOver[0].at < now - ARRIVAL_MS) this.#handedOver.shift()?.listener(true);
  }

  /**
   * Does not count a time in which this process was not there as the client's silence.
   * @param now monotonic milliseconds
   */
  excuse(milliseconds: number, now: number): void {
    this.#acceptedAt = Math.min(this.#acceptedAt + milliseconds, now);
    for (const answer of this.#handedOver) answer.at = Math.min(answer.at + milliseconds, now);
  }

  /** Breaks it, which takes away what the client has not read: nothing of that has arrived. */
  reset(): void {
    this.#haveArrived(false);
    this.socket.resetAndDestroy();
  }

  /** Takes note that the oldest answer was sent, and goes on with what has waited for it. */
  answered(): void {
    this.#unanswered.shift();
    this.#readWhenAnswered = this.socket.bytesRead;
    this.#idleSince = performance.now();
    if (this.#held !== undefined && !this.socket.destroyed && !this.#isFull()) this.#release(this.#held);
    if (this.#isEnding && this.#unanswered.length === 0) this.socket.destroySoon();
  }

  /** Closes the answers that wait behind another one, of which Node closes that one only. */
  lost(hadError: boolean): void {
    this.#haveArrived(!hadError);
    for (const response of this.#unanswered) if (response.socket === null) response.emit('close');
  }

  /** Begins no further request: the connection closes after the answers of those that have begun. */
  end(): void {
    const last = this.#unanswered.at(-1);
    if (!last) return;
    this.#isEnding = true;
    if (!last.headersSent) last.shouldKeepAlive = false;
  }

  /** Tells the client by the next head that is sent that the connection closes with that answer. */
  leave(): void {
    if (this.#held === undefined && this.#unanswered.at(-1)?.headersSent === false) this.end();
  }

  /** For how many milliseconds it has waited for nothing, where that is its state. @param now monotonic milliseconds */
  idleMs(now: number): number {
    return now - this.#idleSince;
  }

  /** Keeps what the parser has left over when a request was held. */
  keep(unparsed: Buffer): void {
    const { socket } = this;
    if (!this.#isUnconsumed) {
      this.#isUnconsumed = true;
      // From now on Node reads into the socket's buffer, which waits, and no longer into the parser, which can't.
      socket.on('data', () => {});
      // Ends the read that the parser had taken over, so that the stream can begin its own.
      socket.push('');
    }
    socket.pause();
    socket.unshift(unparsed);
    // Node resumes a connection whenever a body was read or an answer sent.
    socket.resume = () => socket;
  }

  /**
   * For how many milliseconds the operating system has taken no byte of what there is for the client; 0 while there is
   * nothing. Counts from call to call. @param now monotonic milliseconds
   */
  stalledMs(now: number): number {
    const { writableLength, _handle: handle } = this.socket as HttpSocket;
    if (writableLength > 0 && handle) {
      const accepted = handle.bytesWritten - handle.writeQueueSize;
      if (accepted === this.#accepted) return now - this.#acceptedAt;
      this.#accepted = accepted;
    }
    this.#acceptedAt = now;
    return 0;
  }

  /** Node gathers answers until the end of a turn, so that this is later than any look at the time they are made. */
  #askBeforeSending(): void {
    const { socket } = this;
    const [write, writev] = [socket._write, socket._writev as NonNullable<Socket['_writev']>];
    socket._write = (chunk, encoding, done) =>
      this.#maySend() ? write.call(socket, chunk, encoding, done) : socket.destroy();
    socket._writev = (chunks, done) => (this.#maySend() ? writev.call(socket, chunks, done) : socket.destroy());
  }

  #maySend(): boolean {
    for (const maySend of this.#conditions) if (!maySend()) return false;
    return true;
  }

  /**
   * Breaks the connection where its client had closed it before the last answer was handed over. Node learns of that only
   * as of an end, which may be one of a client that reads on; but what was sent is answered with a reset then, which the
   * next write tells, also one of no bytes.
   */
  #findBroken(): void {
    if (this.socket.writable) this.socket.write(NO_BYTES);
  }

  #clientEnded(): void {
    const lost = this.#handedOver.filter(({ isNew }) => isNew);
    this.#handedOver = this.#handedOver.filter(({ isNew }) => !isNew);
    for (const { listener } of lost) listener(false);
    if (this.#handedOver.length > 0) this.#findBroken();
  }

  #haveArrived(hasArrived: boolean): void {
    if (this.#handedOver.length === 0) return;
    const handedOver = this.#handedOver;
    this.#handedOver = [];
    for (const { listener } of handedOver) listener(hasArrived);
  }

  #isFull(): boolean {
    if (this.#isEnding) return true;
    const unanswered = this.#unanswered.length;
    return unanswered > 0 && (unanswered >= MAX_UNANSWERED || this.unsentBytes > MAX_UNSENT_BYTES);
  }

  #hold(request: IncomingMessage, keepAlive: boolean): number {
    // The parser doesn't tell where it stopped when a request asks for another protocol.
    if ((request as { upgrade?: boolean }).upgrade) this.socket.destroy();
    this.#held = { request, keepAlive };
    return PAUSE;
  }

  #release({ request, keepAlive }: { request: IncomingMessage; keepAlive: boolean }): void {
    const socket = this.socket as HttpSocket;
    this.#held = undefined;
    Reflect.deleteProperty(socket, 'resume');
    this.#begin(request, keepAlive);
    socket.parser.resume();
    socket.parser.execute(NO_BYTES);
    if (!socket._paused) socket.resume();
  }
}
