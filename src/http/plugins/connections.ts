import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import type { JsonObject } from '../../contract/types.ts';
import type { ForwardingProxy, Metrics } from '../../observability/metrics.ts';
import { withoutPort } from '../../payments/limits/address-key.ts';
import { METHODS } from '../edge-headers.ts';
import { JSON_TYPE } from '../reply.ts';
import { type ErrorCode, errorBody } from '../structured-error.ts';

declare module 'fastify' {
  interface FastifyRequest {
    isLast: boolean;
  }
}

/** How long a refused client may keep sending: unread bytes would reset the connection before the response arrives. */
const LINGER_MS = 2_000;

interface Fault {
  readonly status: number;
  readonly code: ErrorCode;
  readonly message: string;
  readonly details?: JsonObject;
}

const FAULTS: Readonly<Record<string, Fault>> = {
  ERR_HTTP_REQUEST_TIMEOUT: {
    status: 408,
    code: 'INVALID_REQUEST',
    message: 'The request took too long to arrive. Send it again. You were not charged.',
  },
  HPE_HEADER_OVERFLOW: {
    status: 431,
    code: 'REQUEST_TOO_LARGE',
    message:
      'The request line and headers are larger than 64 KiB together. Send shorter ones, or send the text in a POST body. You were not charged.',
    details: { field: 'headers', rule: 'maxBytes' },
  },
  HPE_INVALID_URL: {
    status: 400,
    code: 'INVALID_REQUEST',
    message:
      'The URL contains a character that must be percent-encoded. Encode each value as encodeURIComponent does. You were not charged.',
    details: { field: 'url', rule: 'percent-encoding' },
  },
};

const MALFORMED: Fault = {
  status: 400,
  code: 'INVALID_REQUEST',
  message:
    'The request is not valid HTTP/1.1. Check its request line and headers, such as content-length. You were not charged.',
};

const CONNECT: Fault = {
  status: 405,
  code: 'INVALID_REQUEST',
  message: `CONNECT is not supported. Use ${METHODS.join(', ')}. You were not charged.`,
  details: { field: 'method', rule: 'enum', allowed: [...METHODS] },
};

const EXPECTATION: Fault = {
  status: 417,
  code: 'INVALID_REQUEST',
  message: 'The expect header must be 100-continue. Correct it or leave it out. You were not charged.',
  details: { field: 'expect', rule: 'enum', allowed: ['100-continue'] },
};

const bodyOf = ({ code, message, details }: Fault): string => JSON.stringify(errorBody(code, message, details));

function refuse(reply: FastifyReply, fault: Fault): FastifyReply {
  reply.request.record.addLogFields({ code: fault.code });
  return reply.code(fault.status).header('connection', 'close').type(JSON_TYPE).send(bodyOf(fault));
}

const WARNINGS: Readonly<Partial<Record<ForwardingProxy, string>>> = {
  untrusted:
    'a request has X-Forwarded-For from an address that TRUST_PROXY does not name. If this is your proxy, add it to TRUST_PROXY: until then all its clients share one rate limit. If it is a client, nothing is wrong',
  nameless:
    'a trusted proxy wrote X-Forwarded-For without an IP address, so its clients may share one rate limit. Make the proxy write the IP address of the client',
};

export interface ClientErrorParts {
  readonly openReplies: OpenReplies;
  readonly headers: Readonly<Record<string, string>>;
  readonly logger: FastifyBaseLogger;
  readonly metrics: Metrics;
}

interface ConnectionOptions extends ClientErrorParts {
  /** Aborted when a stop begins. */
  readonly leaving: AbortSignal;
  /** TRUST_PROXY is set. */
  readonly trustsProxy: boolean;
}

/**
 * Answers requests for another protocol or expectation, and skips those whose client has left. Warns once when a proxy
 * forwards requests that is not trusted, or names a client by something that is no address.
 */
export const connections = fp<ConnectionOptions>(async (app, parts) => {
  const warned = new Set<ForwardingProxy>();
  // By default Node drops headers beyond a count, possibly X-Forwarded-For. Their total size is bounded anyway.
  app.server.maxHeadersCount = 0;
  app.server.on('checkExpectation', app.routing);
  app.server.on('connect', (_request, socket) => answerConnect(parts, socket));
  // By default Node answers each request over the limit and keeps all of them in memory.
  app.server.on('dropRequest', (_request, socket) => socket.destroy());
  app.addHook('onRequest', async (request, reply) => {
    const { expect, upgrade, 'x-forwarded-for': forwardedFor } = request.headers;
    // No response could be sent, so nothing that is charged may begin.
    if (!request.raw.socket.writable) {
      reply.hijack();
      reply.raw.destroy();
      return reply;
    }
    if (expect !== undefined && !/^100-continue$/i.test(expect)) return refuse(reply, EXPECTATION);
    // Node's parser drops what arrives in one packet with an upgrade request.
    if (parts.leaving.aborted || upgrade !== undefined) reply.header('connection', 'close');
    if (forwardedFor === undefined) return;
    const proxy = proxyOf(request);
    parts.metrics.requestForwarded(proxy);
    const warning = proxy === 'nameless' || !parts.trustsProxy ? WARNINGS[proxy] : undefined;
    if (!warning || warned.has(proxy)) return;
    warned.add(proxy);
    request.log.warn(warning);
  });
});

function proxyOf({ ip, ips }: FastifyRequest): ForwardingProxy {
  if ((ips?.length ?? 0) < 2) return 'untrusted';
  return isIP(withoutPort(ip)) === 0 ? 'nameless' : 'trusted';
}

/** Answers what Node's parser rejects (R10). Running requests of the connection still get their response first. */
export function answerClientError(parts: ClientErrorParts, error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return;
  const fault = FAULTS[error.code ?? ''] ?? MALFORMED;
  const replies = parts.openReplies.of(socket);
  const last = replies.at(-1);
  if (last) parts.openReplies.closeAfter(last);
  else writeAnswer(parts, socket, null, fault);
  for (const reply of replies) if (!reply.request.hasBegun && !reply.sent) refuse(reply, fault);
}

/** Answers CONNECT, which no path supports (R51). Behind other requests it closes the connection. */
function answerConnect(parts: ClientErrorParts, socket: Duplex): void {
  // Node has removed its own listeners from the socket.
  socket.on('error', () => socket.destroy());
  if (parts.openReplies.of(socket).length > 0) socket.destroy();
  else writeAnswer(parts, socket, 'CONNECT', CONNECT, { allow: METHODS.join(', ') });
}

function writeAnswer(
  { headers, logger, metrics }: ClientErrorParts,
  socket: Duplex,
  method: string | null,
  fault: Fault,
  more: Readonly<Record<string, string>> = {},
): void {
  const { status } = fault;
  const body = bodyOf(fault);
  const bytes = Buffer.byteLength(body);
  const traceId = randomUUID();
  const fields = {
    ...headers,
    ...more,
    'x-trace-id': traceId,
    'content-type': JSON_TYPE,
    'content-length': String(bytes),
    connection: 'close',
  };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`);
  socket.resume();
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
  metrics.requestEnded(undefined, status, 'answered', 0);
  const { code } = fault;
  logger.info({ traceId, method, route: null, status, end: 'answered', bytes, code }, 'request');
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
