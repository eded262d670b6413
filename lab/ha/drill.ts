import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import type { TestChain } from '../../test/support/chain.ts';
import { speechgate } from '../../test/support/speechgate.ts';
import { DatabaseCluster, type Death, type Replication } from './database-cluster.ts';
import { errorsBySort, type Fault, type Figures, figuresOf } from './figures.ts';
import { Front, type Pooling } from './front.ts';
import { type Contradiction, judge } from './judge.ts';
import { openOutside, servedByFlow, startLoad } from './load.ts';
import { openPlace } from './place.ts';

export interface DrillOptions {
  readonly replication: Replication;
  readonly pooling: Pooling;
  readonly faults: readonly (Death | 'gateway one' | 'gateway two' | 'pgbouncer')[];
  /** Load before the first fault and after each recovery. */
  readonly calmMs: number;
  readonly pauseMs: number;
  readonly progress: (message: string) => void;
}

export interface DrillResult {
  readonly figures: readonly Figures[];
  readonly errors: Readonly<Record<string, number>>;
  readonly contradictions: readonly Contradiction[];
  /** Result of `npm run audit -- --external`. */
  readonly audit: { readonly code: number; readonly output: string };
  /** Successful responses by flow. */
  readonly served: Readonly<Record<string, number>>;
}

/** Runs the service of ops/ha under the load of all flows, and breaks one part after the other. */
export async function drill(t: Test, chain: TestChain, options: DrillOptions): Promise<DrillResult> {
  const { progress, calmMs } = options;
  const place = await openPlace(t);
  const cluster = new DatabaseCluster(t, place, options.replication);
  const front = new Front(t, place, options.pooling);
  const outside = await openOutside(t, chain, place.folder);

  progress('starting etcd, PostgreSQL and Patroni');
  await cluster.start();
  progress('starting HAProxy, PgBouncer, gateways and worker');
  await front.start(cluster, migrate, outside.env);
  await cluster.untilReplicated();

  progress('buying credit, depositing');
  const { diary, stop } = await startLoad(chain, outside, { url: front.url, pauseMs: options.pauseMs });

  progress('load begins');
  const faults: Fault[] = [];
  const begunAt = new Date();
  await sleep(calmMs);
  for (const name of options.faults) {
    progress(name);
    const at = performance.now();
    const recover = await strike(name, cluster, front);
    faults.push({ name, at, until: performance.now() });
    progress(`${name}: over after ${Math.round((performance.now() - at) / 100) / 10} s`);
    await sleep(calmMs);
    await recover();
  }
  const end = performance.now();
  const told = await stop();
  const losses = faults.filter(({ name }) => name === 'lost commits');

  if (losses.length > 0) {
    progress('booking what processor and chain know of the lost commits');
    const caughtUp = await speechgate(front.env, 'reconcile', '--since', begunAt.toISOString(), '--book');
    const hasLost = /Booked by this run: [1-9]/.test(caughtUp.output);
    if (caughtUp.code !== 0 || !hasLost) throw new Error(`no payment was lost, or booked again\n${caughtUp.output}`);
    progress(caughtUp.output);
  }
  progress('waiting for what is unfinished, then comparing');
  const contradictions = await judge(front.databaseUrl, told, losses).catch((error) => [String(error), front.output()]);
  const audit = await speechgate(front.env, 'audit', '--external');
  return {
    figures: figuresOf(diary.attempts, faults, end),
    errors: errorsBySort(diary.attempts),
    contradictions,
    audit: { code: audit.code, output: audit.output },
    served: servedByFlow(diary),
  };
}

/** Breaks one part and waits until the service has recovered. @returns a function that restores the part */
async function strike(
  name: DrillOptions['faults'][number],
  cluster: DatabaseCluster,
  front: Front,
): Promise<() => Promise<void>> {
  switch (name) {
    case 'gateway one':
    case 'gateway two': {
      const code = await front.replaceGateway(name === 'gateway one' ? 'one' : 'two');
      if (code !== 0) throw new Error(`${name} has stopped with ${code}\n${front.output()}`);
      return async () => {};
    }
    case 'pgbouncer':
      await front.restartPgbouncer();
      return async () => {};
    default: {
      const dead = await cluster.killPrimary(name);
      await cluster.untilTakenOver(dead);
      return () => cluster.revive(dead);
    }
  }
}
