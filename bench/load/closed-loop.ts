import { setTimeout as sleep } from 'node:timers/promises';
import { cpuOf, memoryOf, processTree } from '../processes.ts';
import { quantile } from '../statistics.ts';
import { Connection, type Expected } from './connection.ts';
import { buildRequests, type Plan } from './requests.ts';

/** One round of one target: as many requests as it takes, always so many at a time. */
export interface ClosedLoop {
  readonly kind: 'closed-loop';
  readonly port: number;
  readonly plan: Plan;
  readonly expected: Expected;
  readonly concurrency: number;
  readonly warmUpSeconds: number;
  readonly seconds: number;
  /** It ends after so many requests too. Where they are signed, this many are beforehand, and it has to be given. */
  readonly most?: number;
  readonly targetPid: number;
  readonly postgresPid: number | undefined;
}

interface Counters {
  /** Of the target's process and all below it, in milliseconds. */
  readonly targetCpuMs: number;
  readonly postgresCpuMs: number;
  /** Of this process. */
  readonly loadCpuMs: number;
}

export interface ClosedLoopResult extends Counters {
  readonly requests: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** The target's at the end of the round, in bytes. */
  readonly memory: number;
}

/** Throws when an answer is not as expected. */
export async function runClosedLoop(job: ClosedLoop): Promise<ClosedLoopResult> {
  const { most = Number.POSITIVE_INFINITY } = job;
  const requests = buildRequests(job.plan, most);
  const latencies: number[] = [];
  let sent = 0;
  let phase: 'warm-up' | 'measured' | 'over' = 'warm-up';
  const stop = new AbortController();

  const askOnAndOn = async (connection: Connection) => {
    while (phase !== 'over' && sent < most) {
      const request = requests[sent++ % requests.length] as Buffer;
      const sentAt = performance.now();
      await connection.ask(request);
      if (phase === 'measured') latencies.push(performance.now() - sentAt);
    }
  };

  const connections = await Promise.all(
    Array.from({ length: job.concurrency }, () => Connection.open(job.port, job.expected)),
  );
  try {
    const running = Promise.all(connections.map(askOnAndOn));
    const passed = (seconds: number) => sleep(seconds * 1000, undefined, { signal: stop.signal }).catch(() => {});
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
    if (latencies.length === 0) throw new Error('there was no answer within a round');
    const sorted = Float64Array.from(latencies).sort();
    return {
      ...{ requests: sorted.length, seconds, p50Ms: quantile(sorted, 0.5), p99Ms: quantile(sorted, 0.99), memory },
      targetCpuMs: after.targetCpuMs - before.targetCpuMs,
      postgresCpuMs: after.postgresCpuMs - before.postgresCpuMs,
      loadCpuMs: after.loadCpuMs - before.loadCpuMs,
    };
  } finally {
    stop.abort();
    for (const connection of connections) connection.close();
  }
}

const counters = ({ targetPid, postgresPid }: ClosedLoop): Counters => ({
  targetCpuMs: cpuOf(targetPid),
  postgresCpuMs: postgresPid === undefined ? 0 : cpuOf(postgresPid),
  loadCpuMs: cpuOf(process.pid),
});
