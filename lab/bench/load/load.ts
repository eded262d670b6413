import { setTimeout as sleep } from 'node:timers/promises';
import { cpuOf, memoryOf, processTree } from '../processes.ts';
import { quantile } from '../statistics.ts';
import { Connection, type Expected } from './connection.ts';
import { buildRequests, isSigned, type Plan } from './requests.ts';

export interface Part {
  readonly name: string;
  /** Fraction of all requests. The shares of a load add up to 1. */
  readonly share: number;
  readonly plan: Plan;
  readonly expected: Expected;
}

export interface Load {
  readonly kind: 'load';
  readonly port: number;
  readonly parts: readonly Part[];
  /** Either a fixed concurrency, or a fixed rate that does not wait for earlier responses. */
  readonly pace:
    | { readonly concurrency: number }
    | { readonly requestsPerSecond: number; readonly connections: number };
  readonly warmUpSeconds: number;
  readonly seconds: number;
  /** Ends the load after this many requests. Required when requests are signed in advance without a fixed rate. */
  readonly most?: number;
  /** Accept 429 and 503 as responses. */
  readonly mayRefuse?: boolean;
  readonly targetPid: number;
  readonly postgresPid?: number;
}

export interface PartResult {
  readonly served: number;
  readonly refused: number;
  /** Not sent because every connection was busy. */
  readonly unsent: number;
  /** Served requests only. At a fixed rate the latency starts when a request is due. */
  readonly latenciesMs: readonly number[];
  readonly firstBytesMs: readonly number[];
}

interface Counters {
  readonly targetCpuMs: number;
  readonly postgresCpuMs: number;
}

export interface LoadResult extends Counters {
  readonly seconds: number;
  /** Without the warm-up. */
  readonly parts: Readonly<Record<string, PartResult>>;
  /** Served requests for each part, with the warm-up. */
  readonly servedInAll: Readonly<Record<string, number>>;
  readonly memory: number;
}

/** Connections opened at a time: a server's accept queue holds a few hundred. */
const AT_A_TIME = 100;
/** A part may get this many more than its share, since the parts interleave. */
const UNEVEN = 4;
const REFUSALS: readonly number[] = [429, 503];

class Sending {
  readonly part: Part;
  readonly #requests: readonly Buffer[];
  readonly #isSigned: boolean;
  #next = 0;
  served = 0;
  refused = 0;
  unsent = 0;
  servedInAll = 0;
  readonly latenciesMs: number[] = [];
  readonly firstBytesMs: number[] = [];

  constructor(part: Part, count: number) {
    this.part = part;
    this.#requests = buildRequests(part.plan, count);
    this.#isSigned = isSigned(part.plan);
  }

  /** A signed request can be sent only once. */
  take(): Buffer {
    const request = this.#requests[this.#isSigned ? this.#next : this.#next % this.#requests.length];
    if (!request) throw new Error(`${this.part.name} was asked more often than was signed for`);
    this.#next += 1;
    return request;
  }

  isExpected({ status, bytes }: Expected): boolean {
    return status === this.part.expected.status && bytes === this.part.expected.bytes;
  }

  result(): PartResult {
    const { served, refused, unsent, latenciesMs, firstBytesMs } = this;
    return { served, refused, unsent, latenciesMs, firstBytesMs };
  }
}

/** @throws when a response is neither expected nor an acceptable refusal */
export async function runLoad(job: Load): Promise<LoadResult> {
  const { pace } = job;
  const rate = 'requestsPerSecond' in pace ? pace.requestsPerSecond : undefined;
  const unlimited =
    rate === undefined ? Number.POSITIVE_INFINITY : Math.round(rate * (job.warmUpSeconds + job.seconds));
  const most = job.most ?? unlimited;
  const sendings = job.parts.map((part) => new Sending(part, Math.ceil(most * part.share) + UNEVEN));
  const connections = await openConnections(job.port, 'connections' in pace ? pace.connections : pace.concurrency);
  const free = [...connections];
  const stop = new AbortController();
  const passed = (seconds: number) => sleep(seconds * 1000, undefined, { signal: stop.signal }).catch(() => {});
  let phase: 'warm-up' | 'measured' | 'over' = 'warm-up';
  let asked = 0;

  const ask = async (dueAt: number, isMeasured: () => boolean) => {
    const sending = nextOf(sendings, asked++);
    const connection = free.pop();
    if (!connection) {
      if (isMeasured()) sending.unsent += 1;
      return;
    }
    let firstByteAt = Number.NaN;
    const answer = await connection.ask(sending.take(), () => {
      firstByteAt = performance.now();
    });
    free.push(connection);
    if (sending.isExpected(answer)) {
      sending.servedInAll += 1;
      if (!isMeasured()) return;
      sending.served += 1;
      sending.latenciesMs.push(performance.now() - dueAt);
      sending.firstBytesMs.push(firstByteAt - dueAt);
    } else if (!job.mayRefuse || !REFUSALS.includes(answer.status)) {
      const { name, expected } = sending.part;
      throw new Error(
        `${name}: status ${answer.status} with ${answer.bytes} bytes instead of ${expected.status} with ${expected.bytes}`,
      );
    } else if (isMeasured()) sending.refused += 1;
  };

  /** Counts responses that arrive during the measurement. */
  const askInTurn = async () => {
    while (phase !== 'over' && asked < most) await ask(performance.now(), () => phase === 'measured');
  };

  /** Counts responses to requests that are due during the measurement. */
  const askAtRate = async (perSecond: number) => {
    const startedAt = performance.now();
    const measuredFrom = startedAt + job.warmUpSeconds * 1000;
    let failure: unknown;
    const running: Promise<void>[] = [];
    while (asked < most && failure === undefined) {
      const dueAt = startedAt + (asked * 1000) / perSecond;
      const waitMs = dueAt - performance.now();
      if (waitMs > 0) await sleep(waitMs);
      const one = ask(dueAt, () => dueAt >= measuredFrom).catch((error) => {
        failure = error;
      });
      running.push(one);
    }
    await Promise.all(running);
    if (failure !== undefined) throw failure;
  };

  try {
    const running = rate === undefined ? Promise.all(connections.map(askInTurn)) : askAtRate(rate);
    if (job.warmUpSeconds > 0) await Promise.race([passed(job.warmUpSeconds), running]);
    phase = 'measured';
    const before = counters(job);
    const startedAt = performance.now();
    await Promise.race([passed(job.seconds), running]);
    const seconds = (performance.now() - startedAt) / 1000;
    const after = counters(job);
    phase = 'over';
    const memory = memoryOf(processTree(job.targetPid));
    await running;
    return {
      seconds,
      memory,
      targetCpuMs: after.targetCpuMs - before.targetCpuMs,
      postgresCpuMs: after.postgresCpuMs - before.postgresCpuMs,
      parts: Object.fromEntries(sendings.map((sending) => [sending.part.name, sending.result()])),
      servedInAll: Object.fromEntries(sendings.map(({ part, servedInAll }) => [part.name, servedInAll])),
    };
  } finally {
    stop.abort();
    for (const connection of connections) connection.close();
  }
}

async function openConnections(port: number, count: number): Promise<Connection[]> {
  const connections: Connection[] = [];
  while (connections.length < count) {
    const some = Math.min(AT_A_TIME, count - connections.length);
    connections.push(...(await Promise.all(Array.from({ length: some }, () => Connection.open(port)))));
  }
  return connections;
}

const counters = ({ targetPid, postgresPid }: Load): Counters => ({
  targetCpuMs: cpuOf(targetPid),
  postgresCpuMs: postgresPid === undefined ? 0 : cpuOf(postgresPid),
});

/** Interleaves the parts evenly and reproducibly, by multiples of the golden ratio. */
function nextOf(sendings: readonly Sending[], index: number): Sending {
  let at = (index * 0.618_033_988_749_895) % 1;
  for (const sending of sendings) {
    if (at < sending.part.share) return sending;
    at -= sending.part.share;
  }
  return sendings.at(-1) as Sending;
}

/** Percentile over several parts, in milliseconds. */
export function latencyOf(
  results: readonly PartResult[],
  share: number,
  what: 'latenciesMs' | 'firstBytesMs' = 'latenciesMs',
): number {
  const sorted = Float64Array.from(results.flatMap((result) => result[what])).sort();
  if (sorted.length === 0) throw new Error('no request was served within the time');
  return quantile(sorted, share);
}
