import { setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../statistics.ts';
import { Connection, type Expected } from './connection.ts';
import { buildRequests, type Plan } from './requests.ts';

/** Requests at a fixed rate, whether or not those before have been answered. */
export interface OpenLoop {
  readonly kind: 'open-loop';
  readonly port: number;
  readonly plan: Plan;
  readonly expected: Expected;
  readonly requestsPerSecond: number;
  readonly warmUpSeconds: number;
  readonly seconds: number;
}

export interface OpenLoopResult {
  readonly requests: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly firstByteP50Ms: number;
  readonly firstByteP99Ms: number;
}

/**
 * Each request has its time, and its latency is counted from that on, so that one which waits behind slow ones is not
 * overlooked (coordinated omission). Throws when an answer is not as expected.
 */
export async function runOpenLoop(job: OpenLoop): Promise<OpenLoopResult> {
  const everyMs = 1000 / job.requestsPerSecond;
  const warmUp = Math.round(job.warmUpSeconds * job.requestsPerSecond);
  const count = warmUp + Math.round(job.seconds * job.requestsPerSecond);
  const requests = buildRequests(job.plan, count);
  const whole: number[] = [];
  const firstBytes: number[] = [];
  const connections: Connection[] = [];
  const free: Connection[] = [];

  const ask = async (index: number, dueAt: number) => {
    let connection = free.pop();
    if (!connection) {
      connection = await Connection.open(job.port, job.expected);
      connections.push(connection);
    }
    let firstByteAt = Number.NaN;
    await connection.ask(requests[index % requests.length] as Buffer, () => {
      firstByteAt = performance.now();
    });
    free.push(connection);
    if (index < warmUp) return;
    whole.push(performance.now() - dueAt);
    firstBytes.push(firstByteAt - dueAt);
  };

  try {
    const startedAt = performance.now();
    let failure: unknown;
    const asked: Promise<void>[] = [];
    for (let index = 0; index < count && failure === undefined; index++) {
      const dueAt = startedAt + index * everyMs;
      const waitMs = dueAt - performance.now();
      if (waitMs > 0) await sleep(waitMs);
      asked.push(
        ask(index, dueAt).catch((error) => {
          failure = error;
        }),
      );
    }
    await Promise.all(asked);
    if (failure !== undefined) throw failure;
  } finally {
    for (const connection of connections) connection.close();
  }
  const [all, first] = [Float64Array.from(whole).sort(), Float64Array.from(firstBytes).sort()];
  return {
    ...{ requests: all.length, p50Ms: quantile(all, 0.5), p99Ms: quantile(all, 0.99) },
    ...{ firstByteP50Ms: quantile(first, 0.5), firstByteP99Ms: quantile(first, 0.99) },
  };
}
