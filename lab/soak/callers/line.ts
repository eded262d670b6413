import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import type { GatewayName, Origin } from '../world/world.ts';

export interface Sent {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface Heard {
  readonly gateway: GatewayName;
  /** 0 without a response. */
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly isWhole: boolean;
  /** The connection was refused, so the request was not sent. */
  readonly isUnsent: boolean;
  /** The caller disconnected: by plan or after the timeout. */
  readonly hasHungUp: boolean;
}

/** When the caller disconnects: some time after the request, or after this much of the body. */
export type HangUp = { readonly afterMs: number } | { readonly afterBytes: number };

/** Called for each request that its caller did not plan to leave. */
export type Observe = (sent: Sent, heard: Heard, ms: number) => void;

/** All callers' connections to one gateway. */
export class Line {
  readonly #agent = new Agent({ keepAlive: true, keepAliveMsecs: 60_000, maxSockets: Number.POSITIVE_INFINITY });
  readonly #gateway: GatewayName;
  readonly #origin: Origin;
  readonly #observe: Observe | undefined;

  constructor(gateway: GatewayName, origin: Origin, observe?: Observe) {
    this.#gateway = gateway;
    this.#origin = origin;
    this.#observe = observe;
  }

  /** Sends a request and records the result. Never throws. @param timeoutMs the caller disconnects after this time */
  async ask(sent: Sent, timeoutMs: number, hangUp?: HangUp): Promise<Heard> {
    const begunAt = performance.now();
    const heard = await this.#send(sent, timeoutMs, hangUp);
    if (!hangUp) this.#observe?.(sent, heard, performance.now() - begunAt);
    return heard;
  }

  close(): void {
    this.#agent.destroy();
  }

  #send({ method, path, headers, body }: Sent, timeoutMs: number, hangUp?: HangUp): Promise<Heard> {
    return new Promise((resolve) => {
      const nothing: Heard = {
        ...{ gateway: this.#gateway, status: 0, headers: {}, body: Buffer.alloc(0) },
        ...{ isWhole: false, isUnsent: false, hasHungUp: false },
      };
      let heard = nothing;
      const chunks: Buffer[] = [];
      let received = 0;
      const outgoing = request(this.#origin() + path, {
        ...{ agent: this.#agent, method },
        headers: { ...headers, ...(body !== undefined && { 'content-length': Buffer.byteLength(body) }) },
      });
      const giveUpMs = hangUp && 'afterMs' in hangUp ? hangUp.afterMs : timeoutMs;
      let hasHungUp = false;
      const hangUpNow = () => {
        hasHungUp = true;
        outgoing.destroy();
      };
      const givingUp = setTimeout(hangUpNow, giveUpMs);
      const end = (isWhole: boolean, isUnsent = false) => {
        clearTimeout(givingUp);
        resolve({ ...heard, body: Buffer.concat(chunks), isWhole, isUnsent, hasHungUp });
      };
      outgoing.on('response', (incoming) => {
        heard = { ...nothing, status: incoming.statusCode ?? 0, headers: incoming.headers };
        incoming.on('data', (chunk: Buffer) => {
          chunks.push(chunk);
          received += chunk.length;
          if (hangUp && 'afterBytes' in hangUp && received >= hangUp.afterBytes) hangUpNow();
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
}
