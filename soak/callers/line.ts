import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import type { GatewayName } from '../world/world.ts';

/** A request as it goes over the wire. */
export interface Sent {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** What came of a request. */
export interface Heard {
  /** Who was asked. */
  readonly gateway: GatewayName;
  /** 0 when no answer has begun. */
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** As far as it has come. */
  readonly body: Buffer;
  /** Whether the answer has come to its end. */
  readonly isWhole: boolean;
  /** Nobody listened: the request has not left. */
  readonly isUnsent: boolean;
}

/** When the caller breaks the connection: so long after the request, or once so many bytes of the body have come. */
export type HangUp = { readonly afterMs: number } | { readonly afterBytes: number };

/** The connections of all callers to one gateway. */
export class Line {
  readonly #agent = new Agent({ keepAlive: true, keepAliveMsecs: 60_000, maxSockets: Number.POSITIVE_INFINITY });
  readonly #gateway: GatewayName;
  readonly #hostname: string;
  readonly #port: string;

  constructor(gateway: GatewayName, origin: string) {
    const { hostname, port } = new URL(origin);
    this.#gateway = gateway;
    this.#hostname = hostname;
    this.#port = port;
  }

  /** Never throws: what has come is told. @param patienceMs an answer that takes longer is given up */
  ask({ method, path, headers, body }: Sent, patienceMs: number, hangUp?: HangUp): Promise<Heard> {
    return new Promise((resolve) => {
      const nothing: Heard = {
        ...{ gateway: this.#gateway, status: 0, headers: {}, body: Buffer.alloc(0) },
        ...{ isWhole: false, isUnsent: false },
      };
      let heard = nothing;
      const chunks: Buffer[] = [];
      let received = 0;
      const outgoing = request({
        ...{ agent: this.#agent, hostname: this.#hostname, port: this.#port, method, path },
        headers: { ...headers, ...(body !== undefined && { 'content-length': Buffer.byteLength(body) }) },
      });
      const giveUpMs = hangUp && 'afterMs' in hangUp ? hangUp.afterMs : patienceMs;
      const givingUp = setTimeout(() => outgoing.destroy(), giveUpMs);
      const end = (isWhole: boolean, isUnsent = false) => {
        clearTimeout(givingUp);
        resolve({ ...heard, body: Buffer.concat(chunks), isWhole, isUnsent });
      };
      outgoing.on('response', (incoming) => {
        heard = { ...nothing, status: incoming.statusCode ?? 0, headers: incoming.headers };
        incoming.on('data', (chunk: Buffer) => {
          chunks.push(chunk);
          received += chunk.length;
          if (hangUp && 'afterBytes' in hangUp && received >= hangUp.afterBytes) outgoing.destroy();
        });
        incoming.on('error', () => {});
        incoming.on('close', () => end(incoming.complete));
      });
      outgoing.on('error', (error: NodeJS.ErrnoException) => end(false, error.code === 'ECONNREFUSED'));
      outgoing.on('close', () => {
        if (heard === nothing) end(false);
      });
      outgoing.end(body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}
