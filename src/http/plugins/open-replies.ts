import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply } from 'fastify';
import fp from 'fastify-plugin';

declare module 'fastify' {
  interface FastifyRequest {
    isLast: boolean;
  }
}

/** At a stop, how long clients may take to read responses already written, and again after the last work ended. */
const STOP_DELIVERY_MS = 5_000;
const POLL_MS = 50;

interface GracefulStopOptions {
  readonly replies: OpenReplies;
  readonly leaving: AbortSignal;
}

/** Unsent replies by connection, in the order of their requests. */
export class OpenReplies {
  readonly #bySocket = new Map<Socket, Set<FastifyReply>>();
  #isStopping = false;

  constructor({ server }: FastifyInstance) {
    server.on('connection', (socket) => {
      const replies = new Set<FastifyReply>();
      this.#bySocket.set(socket, replies);
      socket.once('close', () => {
        this.#bySocket.delete(socket);
        // Node closes only the response being sent, not those that wait behind it.
        for (const { raw } of replies) if (raw.socket === null) raw.emit('close');
      });
    });
    server.on('timeout', (socket) => this.#cut(socket));
  }

  add(reply: FastifyReply): void {
    const { raw, request } = reply;
    const { socket } = request.raw;
    const replies = this.#bySocket.get(socket);
    if (!replies) return;
    replies.add(reply);
    raw.once('close', () => {
      replies.delete(reply);
      if (replies.size === 0 && (this.#isStopping || request.isLast)) socket.end();
    });
  }

  of(socket: Duplex): readonly FastifyReply[] {
    return [...(this.#bySocket.get(socket as Socket) ?? [])];
  }

  closeAfter(reply: FastifyReply): void {
    reply.request.isLast = true;
    if (!reply.sent) reply.header('connection', 'close');
  }

  /** Makes clients open another connection for their next request. */
  leave(): void {
    for (const replies of this.#bySocket.values()) {
      const last = [...replies].at(-1);
      if (last && !last.sent) last.header('connection', 'close');
    }
  }

  stop(): void {
    this.#isStopping = true;
    this.leave();
  }

  cutAll(): void {
    for (const socket of this.#bySocket.keys()) this.#cut(socket);
  }

  /** Resets the connection if it has sent a part of a response, which must not look whole. */
  #cut(socket: Socket): void {
    if (this.of(socket).some(({ raw }) => raw.headersSent)) socket.resetAndDestroy();
    else socket.destroy();
  }

  /** Waits for written responses to be sent, within a limit: Node's `server.close()` would cut them. */
  async flushed(milliseconds: number): Promise<void> {
    const deadline = performance.now() + milliseconds;
    const isUnsent = ({ raw }: FastifyReply) => raw.writableEnded && !raw.writableFinished && !raw.destroyed;
    const isAnyUnsent = () => [...this.#bySocket.values()].some((replies) => [...replies].some(isUnsent));
    while (performance.now() < deadline && isAnyUnsent()) await sleep(POLL_MS);
  }
}

/** Lets a stop finish running requests, then closes stalled connections. @param leaving aborted when the stop begins */
export const gracefulStop = fp<GracefulStopOptions>(async (app, { replies, leaving }) => {
  const { work } = app;
  const closed = new AbortController();
  leaving.addEventListener('abort', () => replies.leave());
  app.addHook('preClose', async () => {
    replies.stop();
    await replies.flushed(STOP_DELIVERY_MS);
    void cutWhenIdle().catch(() => {});
  });
  app.addHook('onClose', async () => closed.abort());

  async function cutWhenIdle(): Promise<void> {
    do {
      await work.idle();
      await sleep(STOP_DELIVERY_MS, undefined, { signal: closed.signal });
    } while (work.size > 0);
    replies.cutAll();
    app.server.closeAllConnections();
  }
});
