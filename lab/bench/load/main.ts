/** Sends requests in a process of its own. Its parent sends one load after the other and gets the results. */
import { setTimeout as sleep } from 'node:timers/promises';
import { cpuOf, memoryOf, processTree } from '../processes.ts';
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
  readonly port: number;
  readonly parts: readonly Part[];
  readonly connections: number;
  /** Does not wait for earlier responses. Undefined: each connection sends its next request at once. */
  readonly requestsPerSecond?: number;
  readonly warmUpSeconds: number;
  readonly seconds: number;
  /** Ends the load after this many requests. Required when requests are signed in advance without a fixed rate. */
  readonly most?: number;
  /** Accept 429 and 503 as responses. */
  readonly mayRefuse?: boolean;
  readonly targetPid: number;
  readonly postgresPid?: number;
}

/** Without the warm-up, except `servedInAll`. */
export interface PartResult {
  served: number;
  refused: number;
  /** Not sent because every connection was busy. */
  unsent: number;
  servedInAll: number;
  /** Served requests only, from when a request was due at a fixed rate. */
  readonly latenciesMs: number[];
  readonly firstBytesMs: number[];
}

export interface LoadResult {
  readonly seconds: number;
  readonly parts: Readonly<Record<string, PartResult>>;
  /** In milliseconds. */
  readonly targetCpuMs: number;
  readonly postgresCpuMs: number;
  readonly memory: number;
}

export type Outcome = { readonly result: LoadResult } | { readonly failure: string };

/** Connections opened at a time: a server's accept queue holds a few hundred. */
const AT_A_TIME = 100;
/** A part may get this many more than its share, since the parts interleave. */
const UNEVEN = 4;
const REFUSALS: readonly number[] = [429, 503];
/** Of the golden ratio, whose multiples interleave the parts evenly and reproducibly. */
const GOLDEN_FRACTION = 0.618_033_988_749_895;

process.on('message', async (load: Load) => {
  const outcome = await runLoad(load).then(
    (result): Outcome => ({ result }),
    (error): Outcome => ({ failure: error instanceof Error ? error.message : String(error) }),
  );
  process.send?.(outcome);
});
process.once('disconnect', () => process.exit());

class Sending {
  readonly part: Part;
  readonly result: PartResult = { served: 0, refused: 0, unsent: 0, servedInAll: 0, latenciesMs: [], firstBytesMs: [] };
  readonly #requests: readonly Buffer[];
  #next = 0;

  constructor(part: Part, count: number) {
    this.part = part;
    this.#requests = buildRequests(part.plan, count);
  }

  /** A signed request can be sent only once. */
  take(): Buffer {
    const index = this.#next++;
    const request = this.#requests[isSigned(this.part.plan) ? index : index % this.#requests.length];
    if (!request) throw new Error(`${this.part.name} was asked more often than was signed for`);
    return request;
  }
}

/** @throws when a response is neither expected nor an acceptable refusal */
async function runLoad(load: Load): Promise<LoadResult> {
  const { requestsPerSecond, warmUpSeconds, seconds: wantedSeconds } = load;
  const atRate = requestsPerSecond && Math.round(requestsPerSecond * (warmUpSeconds + wantedSeconds));
  const most = load.most ?? atRate ?? Number.POSITIVE_INFINITY;
  const sendings = load.parts.map((part) => new Sending(part, Math.ceil(most * part.share) + UNEVEN));
  const connections = await openConnections(load);
  const free = [...connections];
  const stop = new AbortController();
  const passed = (seconds: number) => sleep(seconds * 1000, undefined, { signal: stop.signal }).catch(() => {});
  let phase: 'warm-up' | 'measured' | 'over' = 'warm-up';
  let sent = 0;

  const ask = async (dueAt: number, isMeasured: () => boolean) => {
    const sending = sendingAt(sendings, sent++);
    const { part, result } = sending;
    const connection = free.pop();
    if (!connection) {
      if (isMeasured()) result.unsent += 1;
      return;
    }
    let firstByteAt = Number.NaN;
    const { status, bytes } = await connection.ask(sending.take(), () => {
      firstByteAt = performance.now();
    });
    free.push(connection);
    if (status === part.expected.status && bytes === part.expected.bytes) {
      result.servedInAll += 1;
      if (!isMeasured()) return;
      result.served += 1;
      result.latenciesMs.push(performance.now() - dueAt);
      result.firstBytesMs.push(firstByteAt - dueAt);
    } else if (load.mayRefuse && REFUSALS.includes(status)) {
      if (isMeasured()) result.refused += 1;
    } else {
      const { expected } = part;
      const wanted = `${expected.status} with ${expected.bytes}`;
      throw new Error(`${part.name}: status ${status} with ${bytes} bytes instead of ${wanted}`);
    }
  };

  /** Counts responses that arrive during the measurement. */
  const askInTurn = async () => {
    while (phase !== 'over' && sent < most) await ask(performance.now(), () => phase === 'measured');
  };

  /** Counts responses to requests that are due during the measurement. */
  const askAtRate = async (perSecond: number) => {
    const startedAt = performance.now();
    const measuredFrom = startedAt + warmUpSeconds * 1000;
    let failure: unknown;
    const running: Promise<void>[] = [];
    while (sent < most && failure === undefined) {
      const dueAt = startedAt + (sent * 1000) / perSecond;
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
    const running = requestsPerSecond ? askAtRate(requestsPerSecond) : Promise.all(connections.map(askInTurn));
    if (warmUpSeconds > 0) await Promise.race([passed(warmUpSeconds), running]);
    phase = 'measured';
    const before = readCpu(load);
    const startedAt = performance.now();
    await Promise.race([passed(wantedSeconds), running]);
    const seconds = (performance.now() - startedAt) / 1000;
    const after = readCpu(load);
    phase = 'over';
    const memory = memoryOf(processTree(load.targetPid));
    await running;
    return {
      seconds,
      memory,
      targetCpuMs: after.target - before.target,
      postgresCpuMs: after.postgres - before.postgres,
      parts: Object.fromEntries(sendings.map(({ part, result }) => [part.name, result])),
    };
  } finally {
    stop.abort();
    for (const connection of connections) connection.close();
  }
}

async function openConnections({ port, connections: count }: Load): Promise<Connection[]> {
  const connections = Array.from({ length: count }, () => new Connection(port));
  for (let from = 0; from < count; from += AT_A_TIME) {
    await Promise.all(connections.slice(from, from + AT_A_TIME).map((connection) => connection.open()));
  }
  return connections;
}

const readCpu = ({ targetPid, postgresPid }: Load) => ({
  target: cpuOf(targetPid),
  postgres: postgresPid === undefined ? 0 : cpuOf(postgresPid),
});

function sendingAt(sendings: readonly Sending[], index: number): Sending {
  let at = (index * GOLDEN_FRACTION) % 1;
  for (const sending of sendings) {
    if (at < sending.part.share) return sending;
    at -= sending.part.share;
  }
  return sendings.at(-1) as Sending;
}
