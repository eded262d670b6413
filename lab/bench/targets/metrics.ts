/** Values of one of the gateway's metrics, one for each of its time series. */
export type Metrics = (name: string) => readonly number[];

export async function readMetrics(adminPort: number): Promise<Metrics> {
  const text = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
  return (name) => [...text.matchAll(new RegExp(`^${name}[ {].*?(\\S+)$`, 'gm'))].map(([, value]) => Number(value));
}

/** Node.js includes its sampling interval in the delay. */
const SAMPLED_EVERY_MS = 10;

/** 99th percentile since the metrics were last read, in milliseconds. With several processes: the slowest. */
export function eventLoopP99Ms(metrics: Metrics): number {
  const seconds = metrics('nodejs_eventloop_lag_p99_seconds');
  if (seconds.length === 0) throw new Error('the gateway tells no event-loop lag');
  return Math.max(0, Math.max(...seconds) * 1000 - SAMPLED_EVERY_MS);
}
