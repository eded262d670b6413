import type { Worker } from 'node:cluster';
import type { MetricValues } from '../observability/metrics.ts';

/** What the primary tells a process that it has forked. */
export interface Order {
  readonly order: 'stop' | 'report';
}

/** What that process answers to `report`. */
export interface Report {
  readonly metrics: MetricValues;
}

/** A process that is just ending may not hear it. */
export function tell(worker: Worker, order: Order): void {
  if (worker.isConnected()) worker.send(order, () => {});
}
