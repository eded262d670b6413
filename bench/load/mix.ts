import { setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../statistics.ts';
import { Connection, type Expected } from './connection.ts';
import { buildRequests, isSigned, type Plan } from './requests.ts';

/** One kind of request in a mix. */
export interface MixPart {
  readonly name: string;
  /** Of all requests: the shares of a mix are 1 together. */
  readonly share: number;
  readonly plan: Plan;
  /** The answer to one that is served. */
  readonly expected: Expected;
}

/** Several kinds of requests at once, some of which may be refused with 503, or 429. */
export interface Mix {
  readonly kind: 'mix';
  readonly port: number;
  readonly parts: readonly MixPart[];
  /** So many at a time, or at a fixed rate whether or not those before have been answered. */
  readonly pace: { readonly concurrency: number; readonly most: number } | { readonly requestsPerSecond: number };
  readonly warmUpSeconds: number;
  readonly seconds: number;
}

export interface MixPartResult {
  readonly asked: number;
  /** Of those asked: not sent, as all connections were waiting for answers. */
  readonly unsent: number;
  readonly served: number;
  readonly refused: number;
  /** Of those that were served; counted from the moment that a request was due. */
  readonly latenciesMs: readonly number[];
}

export interface MixResult {
  /** From the end of the warm-up until the last request was sent. */
  readonly seconds: number;
  /** Those that were due after the warm-up. */
  readonly parts: Readonly<Record<string, MixPartResult>>;
  /** Answers to all requests that were paid for, those of the warm-up included. */
  readonly servedInAll: Readonly<Record<string, number>>;
}

const CONNECTIONS = 2_000;
/** Connections that are opened at a time: a server may have a few hundred wait. */
const AT_A_TIME = 100;
const REFUSALS: readonly number[] = [429, 503];

class Tally {
  asked = 0;
  unsent = 0;
  served = 0;
  refused = 0;
  servedInAll = 0;
  readonly latenciesMs: number[] = [];
}

/** So many connections, as callers behind proxies have them: what is due while none is free is not sent. */
class Pool {
  readonly #connections: readonly Connection[];
  readonly #free: Connection[];

  private constructor(connections: readonly Connection[]) {
    this.#connections = connections;
    this.#free = [...connections];
  }

  static async open(port: number): Promise<Pool> {
    const connections: Connection[] = [];
    while (connections.length < CONNECTIONS) {
      connections.push(...(await Promise.all(Array.from({ length: AT_A_TIME }, () => Connection.open(port)))));
    }
    return new Pool(connections);
  }

  get hasFree(): boolean {
    return this.#free.length > 0;
  }

  /** Asks on a connection that is free. */
  async ask(request: Buffer): Promise<Expected> {
    const connection = this.#free.pop() as Connection;
    const answer = await connection.ask(request);
    this.#free.push(connection);
    return answer;
  }

  close(): void {
    for (const connection of this.#connections) connection.close();
  }
}

/** Throws when an answer is neither what was expected nor a refusal. */
export async function runMix(job: Mix): Promise<MixResult> {
  const seconds = job.warmUpSeconds + job.seconds;
  const most = 'most' in job.pace ? job.pace.most : Math.round(job.pace.requestsPerSecond * seconds);
  const parts = job.parts.map((part) => {
    const count = Math.ceil(most * part.share) + 1;
    return { ...part, next: 0, tally: new Tally(), requests: buildRequests(part.plan, count) };
  });
  const pool = await Pool.open(job.port);

  const ask = async (index: number, dueAt: number, isMeasured: boolean) => {
    const part = partAt(parts, index);
    const { tally, requests, expected } = part;
    if (isMeasured) tally.asked += 1;
    if (!pool.hasFree) {
      if (isMeasured) tally.unsent += 1;
      return;
    }
    const request = requests[isSigned(part.plan) ? part.next : part.next % requests.length];
    part.next += 1;
    if (!request) throw new Error(`${part.name} was asked more often than was signed for`);
    const answer = await pool.ask(request);
    if (answer.status === expected.status && answer.bytes === expected.bytes) {
      tally.servedInAll += 1;
      if (!isMeasured) return;
      tally.served += 1;
      tally.latenciesMs.push(performance.now() - dueAt);
    } else if (!REFUSALS.includes(answer.status)) {
      throw new Error(`${part.name}: status ${answer.status} with ${answer.bytes} bytes`);
    } else if (isMeasured) tally.refused += 1;
  };

  try {
    const startedAt = performance.now();
    const measuredFrom = startedAt + job.warmUpSeconds * 1000;
    const endsAt = startedAt + seconds * 1000;
    if ('concurrency' in job.pace) await askOnAndOn(ask, job.pace, measuredFrom, endsAt);
    else await askInTime(ask, { everyMs: 1000 / job.pace.requestsPerSecond, most }, startedAt, measuredFrom);
    return {
      seconds: job.seconds,
      parts: Object.fromEntries(parts.map(({ name, tally: { servedInAll: _, ...tally } }) => [name, { ...tally }])),
      servedInAll: Object.fromEntries(parts.map(({ name, tally }) => [name, tally.servedInAll])),
    };
  } finally {
    pool.close();
  }
}

type Ask = (index: number, dueAt: number, isMeasured: boolean) => Promise<void>;

async function askOnAndOn(
  ask: Ask,
  { concurrency, most }: { readonly concurrency: number; readonly most: number },
  measuredFrom: number,
  endsAt: number,
): Promise<void> {
  let index = 0;
  const askUntilEnd = async () => {
    for (let now = performance.now(); now < endsAt && index < most; now = performance.now()) {
      await ask(index++, now, now >= measuredFrom);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, askUntilEnd));
}

async function askInTime(
  ask: Ask,
  { everyMs, most }: { readonly everyMs: number; readonly most: number },
  startedAt: number,
  measuredFrom: number,
): Promise<void> {
  let failure: unknown;
  const asked: Promise<void>[] = [];
  for (let index = 0; index < most && failure === undefined; index++) {
    const dueAt = startedAt + index * everyMs;
    const waitMs = dueAt - performance.now();
    if (waitMs > 0) await sleep(waitMs);
    asked.push(
      ask(index, dueAt, dueAt >= measuredFrom).catch((error) => {
        failure = error;
      }),
    );
  }
  await Promise.all(asked);
  if (failure !== undefined) throw failure;
}

/** Spreads the parts over the requests, always in the same order: the golden ratio never repeats itself. */
function partAt<Part extends MixPart>(parts: readonly Part[], index: number): Part {
  let at = (index * 0.618_033_988_749_895) % 1;
  for (const part of parts) {
    if (at < part.share) return part;
    at -= part.share;
  }
  return parts.at(-1) as Part;
}

/** A percentile of several parts together, in milliseconds. */
export function latencyOf(results: readonly MixPartResult[], share: number): number {
  return quantile(Float64Array.from(results.flatMap(({ latenciesMs }) => latenciesMs)).sort(), share);
}
