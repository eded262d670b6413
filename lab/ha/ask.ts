import { setTimeout as sleep } from 'node:timers/promises';
import type { Call } from '../../test/support/gateway.ts';

const TIMEOUT_MS = 150_000;
const RETRY_MS = 500;

/** One request as its caller saw it. */
export interface Attempt {
  readonly flow: string;
  /** Monotonic clock. */
  readonly at: number;
  readonly ms: number;
  /** 0 without a complete response. */
  readonly status: number;
  readonly code: string | undefined;
  readonly traceId: string | undefined;
}

export interface Answered extends Attempt {
  readonly headers: Headers;
  readonly text: string;
}

export class Diary {
  readonly attempts: Attempt[] = [];
  readonly #route: (url: string) => string;

  /** @param route maps a URL to the one that is really called */
  constructor(route = (url: string) => url) {
    this.#route = route;
  }

  /** Sends one request and records the result. Never throws. */
  async ask(flow: string, url: string, call: Call = {}): Promise<Answered> {
    const at = performance.now();
    const body = call.json === undefined ? call.body : JSON.stringify(call.json);
    const headers = {
      ...(call.json !== undefined && { 'content-type': 'application/json' }),
      ...(call.headers as Record<string, string>),
    };
    let answer = { status: 0, headers: new Headers(), text: '' };
    let code: string | undefined;
    try {
      const reply = await fetch(this.#route(url), {
        method: call.method ?? 'GET',
        headers,
        redirect: 'manual',
        signal: AbortSignal.timeout(TIMEOUT_MS),
        ...(body !== undefined && { body: body.toString() }),
      });
      answer = {
        status: reply.status,
        headers: reply.headers,
        text: Buffer.from(await reply.arrayBuffer()).toString('latin1'),
      };
      if (reply.status >= 400) code = codeOf(answer.text);
    } catch (error) {
      code = String((error as { cause?: { code?: string } }).cause?.code ?? (error as Error).message);
    }
    const traceId = answer.headers.get('x-trace-id') ?? undefined;
    const attempt = { flow, at, ms: performance.now() - at, status: answer.status, code, traceId };
    this.attempts.push(attempt);
    return { ...attempt, ...answer };
  }

  /**
   * Retries the same request, which has an identifier, until the response is final.
   * @returns undefined if that takes longer than 150 seconds
   */
  async persist(flow: string, url: string, call: Call): Promise<Answered | undefined> {
    for (const giveUpAt = performance.now() + TIMEOUT_MS; performance.now() < giveUpAt; await sleep(RETRY_MS)) {
      const answer = await this.ask(flow, url, call);
      if (!isPassing(answer)) return answer;
    }
    return undefined;
  }
}

/** The same request may get another response later. */
export const isPassing = ({ status, code }: Attempt): boolean =>
  status === 0 || status >= 500 || (status === 409 && /PENDING|UNKNOWN/.test(code ?? ''));

function codeOf(text: string): string | undefined {
  try {
    return JSON.parse(text).error.code;
  } catch {
    return 'of HAProxy';
  }
}
