import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyBaseLogger } from 'fastify';
import type { RunningWork } from '../lib/running-work.ts';
import { Connection } from './connection.ts';

/** A client that reads nothing for so long, while there are bytes for it, is cut. */
export const CLIENT_STALL_MS = 30_000;
/** What clients that don't read may occupy together: answers, and requests that wait behind them. */
export const MAX_HELD_BYTES = 128 * 1024 * 1024;
const SWEEP_MS = 1_000;

/** While the server stops: how long a connection that waits for nothing is kept for a request that may be on its way. */
export const STOP_IDLE_MS = 1_000;
/** While the server stops: what a request that has begun to arrive has left to do so. */
const STOP_ARRIVAL_MS = 3_000;
/** While the server stops: how long a client may read nothing. */
const STOP_STALL_MS = 3_000;
/** While the server stops: what its readers have once nothing is worked on any more. */
const STOP_DELIVERY_MS = 5_000;
const STOP_SWEEP_MS = 100;

export interface ConnectionGuardOptions {
  readonly logger: FastifyBaseLogger;
  /** Connections beyond it are closed at once. */
  readonly maxConnections: number;
  readonly stallMs: number;
  /** The operations that run. */
  readonly work: RunningWork;
  /** What the longest of them takes; finished answers may be read for as long after a stop has begun. */
  readonly longestOperationMs: number;
  /** While the server stops: how long a connection that waits for nothing is kept. */
  readonly stopIdleMs: number;
  readonly maxHeldBytes?: number;
}

interface Stop {
  readonly begunAt: number;
  /** Since when nothing has been worked on; undefined while something is. */
  idleSince: number | undefined;
}

/** Why connections are cut. */
type Cut = 'stalled' | 'too much unread';

interface ParserError extends NodeJS.ErrnoException {
  readonly rawPacket?: Buffer;
  readonly bytesParsed?: number;
}

/**
 * The open connections of a server: none may make it hold more than bounds allow, and none holds up its stop. One sweep
 * over all of them looks for clients that don't read, so a request costs no timer.
 */
export class ConnectionGuard {
  readonly #open = new Map<Socket, Connection>();
  readonly #options: ConnectionGuardOptions;
  #sweeping: NodeJS.Timeout | undefined;
  /** When it began to leave, by the monotonic clock. */
  #leftAt: number | undefined;
  #stop: Stop | undefined;

  constructor(options: ConnectionGuardOptions) {
    this.#options = options;
  }

  /** Watches over the connections of a server from its start on. `onFault` gets what its parser refuses. */
  watch(server: Server, onFault: (error: NodeJS.ErrnoException, socket: Socket) => void): void {
    const guard = this;
    function answered(this: ServerResponse): void {
      guard.#open.get(this.req.socket)?.answered();
    }
    const begun = (request: IncomingMessage, response: ServerResponse): void => {
      const connection = this.#open.get(request.socket);
      if (!connection) return;
      connection.begun(response);
      if (this.#leftAt !== undefined) connection.leave();
      response.on('close', answered);
    };
    server.maxConnections = this.#options.maxConnections;
    server.on('connection', (socket) => {
      const connection = new Connection(socket);
      this.#open.set(socket, connection);
      socket.once('close', (hadError) => {
        this.#open.delete(socket);
        connection.lost(hadError);
      });
    });
    server.prependListener('request', begun);
    server.prependListener('checkExpectation', begun);
    server.on('clientError', (error: ParserError, socket: Socket) => {
      if (!this.#isOfHeldRequest(error, socket)) onFault(error, socket);
    });
    // Instead of Node, which would close before it has read what came while the process stood still.
    server.on('timeout', (socket: Socket) => {
      const { bytesRead } = socket;
      setImmediate(() => {
        if (socket.bytesRead === bytesRead) socket.destroy();
      });
    });
    // Closing calls Node's own, which cuts answers that are written but not sent; `stop` has closed what is idle.
    server.closeIdleConnections = () => {};
  }

  /** Begins to look after clients that don't read. */
  start(): void {
    this.#sweepEvery(Math.min(SWEEP_MS, this.#options.stallMs / 4));
  }

  /**
   * From now on each head that is sent says `connection: close`, so that clients go elsewhere with their next request.
   * What waits for nothing stays open: a request may be on its way, which a close would reset.
   */
  leave(now = performance.now()): void {
    this.#leftAt ??= now;
    for (const connection of this.#open.values()) connection.leave();
  }

  /**
   * Leaves, and closes what has waited for nothing for a second, and the rest as it is done: operations finish and are
   * answered; requests that have begun to arrive have 3 s left; who reads nothing for 3 s is cut. When nothing is worked
   * on any more, all is closed 5 s later, but not before the longest operation could have ended.
   */
  stop(now = performance.now()): void {
    this.#stop = { begunAt: now, idleSince: undefined };
    this.leave(now);
    this.#closeWhatIsDone(this.#stop, now);
    this.#sweepEvery(STOP_SWEEP_MS);
  }

  /** Ends what `start` began. */
  close(): void {
    clearInterval(this.#sweeping);
  }

  /** Cuts clients that don't read: each that has stalled, and those that hold the most while all hold too much. */
  sweep(now: number): void {
    const { maxHeldBytes = MAX_HELD_BYTES } = this.#options;
    const stallMs = this.#stop ? Math.min(STOP_STALL_MS, this.#options.stallMs) : this.#options.stallMs;
    const stalled: Connection[] = [];
    const holding: { connection: Connection; bytes: number; isStalled: boolean }[] = [];
    let held = 0;
    for (const connection of this.#open.values()) {
      connection.forgetHandedOver(now);
      const stalledMs = connection.stalledMs(now);
      const bytes = connection.heldBytes;
      if (stalledMs >= stallMs) stalled.push(connection);
      else if (bytes > 0) {
        holding.push({ connection, bytes, isStalled: stalledMs > 0 });
        held += bytes;
      }
    }
    this.#cut(stalled, 'stalled');
    if (held > maxHeldBytes) {
      holding.sort((a, b) => Number(b.isStalled) - Number(a.isStalled) || b.bytes - a.bytes);
      const enough = holding.findIndex(({ bytes }) => {
        held -= bytes;
        return held <= maxHeldBytes;
      });
      this.#cut(
        holding.slice(0, enough + 1).map(({ connection }) => connection),
        'too much unread',
      );
    }
    if (this.#stop) this.#closeWhatIsDone(this.#stop, now);
  }

  #sweepEvery(milliseconds: number): void {
    clearInterval(this.#sweeping);
    let last = performance.now();
    const tick = () => {
      const now = performance.now();
      const lateMs = now - last - milliseconds;
      last = now;
      if (lateMs > 0) for (const connection of this.#open.values()) connection.excuse(lateMs, now);
      // What came while the process stood still is read first.
      setImmediate(() => this.sweep(now));
    };
    this.#sweeping = setInterval(tick, milliseconds).unref();
  }

  #cut(connections: readonly Connection[], reason: Cut): void {
    if (connections.length === 0) return;
    this.#options.logger.warn({ connections: connections.length, reason }, 'cut connections whose clients do not read');
    // A reset frees what the kernel holds for them, too.
    for (const connection of connections) connection.reset();
  }

  /** The error is none: the parser stopped as it was told to, or waited too long for a request that has to wait here. */
  #isOfHeldRequest({ code, rawPacket, bytesParsed }: ParserError, socket: Socket): boolean {
    const connection = this.#open.get(socket);
    if (!connection?.isHolding) return false;
    if (code === 'HPE_PAUSED' && rawPacket) connection.keep(rawPacket.subarray(bytesParsed));
    else if (code === 'ERR_HTTP_REQUEST_TIMEOUT') connection.end();
    else return false;
    return true;
  }

  #closeWhatIsDone(stop: Stop, now: number): void {
    stop.idleSince = this.#options.work.size > 0 ? undefined : (stop.idleSince ?? now);
    const arriveBy = stop.begunAt + STOP_ARRIVAL_MS;
    // Never reached while something is worked on.
    const readBy = Math.max(
      (stop.idleSince ?? now) + STOP_DELIVERY_MS,
      stop.begunAt + this.#options.longestOperationMs,
    );
    const leftMs = now - (this.#leftAt ?? now);
    for (const connection of this.#open.values()) {
      const { state, socket } = connection;
      const isIdle = state === 'idle' && Math.min(leftMs, connection.idleMs(now)) >= this.#options.stopIdleMs;
      if (isIdle || (state === 'arriving' && now >= arriveBy) || now >= readBy) socket.destroy();
    }
  }
}
