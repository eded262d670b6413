import { setTimeout as sleep } from 'node:timers/promises';
import type { Call } from '../support/gateway.ts';

const PATIENCE_MS = 150_000;
const RETRY_MS = 500;

/** One request as its caller saw it. */
export interface Attempt {
  readonly flow: string;
  /** By the monotonic clock. */
  readonly at: number;
  readonly ms: number;
  /** 0 when there was no answer, or only a part of it. */
  readonly status: number;
  readonly code: string | undefined;
  readonly traceId: string | undefined;
}

export interface Answered extends Attempt {
  readonly headers: Headers;
  readonly text: string;
}

/** What callers have seen so far. */
export class Diary {
  readonly attempts: Attempt[] = [];
  readonly #route: (url: string) => string;

  /** @param route where each request really goes, if that is elsewhere */
  constructor(route = (url: string) => url) {
    this.#route = route;
  }

  /** Sends one request, and notes what came of it. Never throws. */
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
        signal: AbortSignal.timeout(PATIENCE_MS),
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
   * Repeats the identical request, as the documents say for what has an identifier of its own, until there is an answer
   * that is no fault of the service and no "repeat it later". Undefined when that was not within two minutes and a half.
   */
  async persist(flow: string, url: string, call: Call): Promise<Answered | undefined> {
    for (const giveUpAt = performance.now() + PATIENCE_MS; performance.now() < giveUpAt; await sleep(RETRY_MS)) {
      const answer = await this.ask(flow, url, call);
      if (!isPassing(answer)) return answer;
    }
    return undefined;
  }
}

/** Whether the same request may have another answer later. */
export const isPassing = ({ status, code }: Attempt): boolean =>
  status === 0 || status >= 500 || (status === 409 && /PENDING|UNKNOWN/.test(code ?? ''));

function codeOf(text: string): string | undefined {
  try {
    return JSON.parse(text).error.code;
  } catch {
    return 'of HAProxy';
  }
}
