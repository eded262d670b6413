import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { AggregatorRegistry, collectDefaultMetrics, Registry } from 'prom-client';
import type { MetricValues } from '../observability/metrics.ts';
import { type Report, tell } from './messages.ts';

/** How long a scrape waits for a process; without its answer it shows what that one told last. */
const REPORT_PATIENCE_MS = 2_000;

/** The metrics of all processes, added up by the rule of each (its `aggregator`). */
export class SummedMetrics {
  readonly #own = new Registry();
  /** What each process told last. */
  readonly #latest = new Map<Worker, MetricValues>();
  /** What those had counted that have ended: without it, their end would read as a new start of all of them. */
  #ended: Promise<MetricValues> = Promise.resolve([]);
  readonly contentType = this.#own.contentType;

  constructor() {
    collectDefaultMetrics({ register: this.#own });
    cluster.on('message', (worker, { metrics }: Report) => {
      if (!worker.isDead()) this.#latest.set(worker, metrics);
    });
    cluster.on('exit', (worker) => this.#keepCounts(worker));
  }

  /**
   * In Prometheus' text format.
   * @param workers those that are there to be asked
   */
  async scrape(workers: readonly Worker[]): Promise<string> {
    await Promise.all(workers.map(askAgain));
    const told = [...this.#latest.values()];
    return sum([await this.#ofPrimary(), await this.#ended, ...told]).metrics();
  }

  /** What the primary itself takes. All of it began when the primary did. */
  async #ofPrimary(): Promise<MetricValues> {
    const values = await this.#own.getMetricsAsJSON();
    return values
      .filter(({ name }) => name.startsWith('process_'))
      .map((metric) => (metric.name === 'process_start_time_seconds' ? { ...metric, aggregator: 'first' } : metric));
  }

  #keepCounts(worker: Worker): void {
    const counts = (this.#latest.get(worker) ?? []).filter(({ type }) => COUNTS.includes(`${type}`));
    this.#latest.delete(worker);
    this.#ended = this.#ended.then((ended) => sum([ended, counts]).getMetricsAsJSON());
  }
}

const COUNTS = ['counter', 'histogram'];

const sum = (metrics: readonly MetricValues[]): Registry => AggregatorRegistry.aggregate([...metrics]);

async function askAgain(worker: Worker): Promise<void> {
  const answered = once(worker, 'message', { signal: AbortSignal.timeout(REPORT_PATIENCE_MS) });
  tell(worker, { order: 'report' });
  await answered.catch(() => {});
}
