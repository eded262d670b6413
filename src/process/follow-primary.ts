import cluster, { type Worker } from 'node:cluster';
import type { Metrics } from '../observability/metrics.ts';
import type { Order, Report } from './messages.ts';

export interface FollowOptions {
  /** Called for each reason to stop. */
  stop(): void;
  readonly metrics: Metrics;
}

/** What a terminal, or a service manager, sends to each process of a group. */
export const GROUP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;

/** Does in a forked process what the primary says, and stops when that is gone: nobody accepts connections for it then. */
export function followPrimary({ stop, metrics }: FollowOptions): void {
  const self = cluster.worker as Worker;
  self.on('message', async ({ order }: Order) => {
    if (order === 'stop') return stop();
    const report: Report = { metrics: await metrics.values() };
    // It may be gone by now.
    if (self.isConnected()) self.send(report);
  });
  // Each of them is the same wish to stop; whoever sends the primary a second one ends all at once.
  for (const signal of GROUP_SIGNALS) process.on(signal, stop);
  self.on('disconnect', () => {
    // Otherwise Node ends the process at once, with what it is working on.
    self.exitedAfterDisconnect = true;
    stop();
  });
}
