import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../statistics.ts';
import type { Expected } from './connection.ts';
import { buildRequests, type Plan } from './requests.ts';
import { ResponseReader } from './response-reader.ts';

/** One request on each of many connections. */
export interface Burst {
  readonly kind: 'burst';
  readonly port: number;
  readonly plan: Plan;
  readonly expected: Expected;
  readonly connections: number;
  /** Over which they come; 0 is all at the same moment. */
  readonly arrivalSeconds: number;
  /** How long a caller waits after each read, of 64 KiB at most. */
  readonly pauseMs: number;
}

export interface BurstResult {
  /** From the first request to the last byte of the last answer. */
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Throws when an answer is not as expected. */
export async function runBurst(job: Burst): Promise<BurstResult> {
  const requests = buildRequests(job.plan, job.connections);
  const startedAt = performance.now();
  const latencies = await Promise.all(
    Array.from({ length: job.connections }, async (_, index) => {
      if (job.arrivalSeconds > 0) await sleep((index / job.connections) * job.arrivalSeconds * 1000);
      return readSlowly(job, requests[index % requests.length] as Buffer);
    }),
  );
  const seconds = (performance.now() - startedAt) / 1000;
  const sorted = Float64Array.from(latencies).sort();
  return { seconds, p50Ms: quantile(sorted, 0.5), p99Ms: quantile(sorted, 0.99) };
}

/** Tells how many milliseconds it has taken. */
function readSlowly({ port, expected, pauseMs }: Burst, request: Buffer): Promise<number> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now();
    const socket = connect({ port, host: '127.0.0.1' });
    const reader = new ResponseReader((status, bytes) => {
      if (status === expected.status && bytes === expected.bytes) resolve(performance.now() - startedAt);
      else reject(new Error(`status ${status} with ${bytes} bytes`));
      socket.destroy();
    });
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('the target has closed a connection within an answer')));
    socket.on('data', (chunk: Buffer) => {
      if (pauseMs > 0) {
        socket.pause();
        setTimeout(() => socket.resume(), pauseMs);
      }
      reader.push(chunk);
    });
    socket.write(request);
  });
}
