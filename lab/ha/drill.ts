import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import { speechgate } from '../../test/support/speechgate.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import type { Struck } from '../soak/faults/schedule.ts';
import type { Contradiction } from '../soak/judge/judge.ts';
import { type Run, runCallers } from '../soak/run.ts';
import { openOutside } from '../soak/world/outside.ts';
import type { Service } from '../soak/world/world.ts';
import { DatabaseCluster, type Death, type Replication } from './database-cluster.ts';
import { type Attempt, errorsBySort, type Fault, type Figures, figuresOf, recordIn } from './figures.ts';
import { Front, type Pooling } from './front.ts';
import { openPlace } from './place.ts';

/** What is delivered is captured within this time. */
const CAPTURED_MS = 1_000;

export interface DrillOptions {
  readonly replication: Replication;
  readonly pooling: Pooling;
  readonly faults: readonly (Death | 'gateway one' | 'gateway two' | 'pgbouncer')[];
  /** Load before the first fault and after each recovery. */
  readonly calmMs: number;
  readonly callers: number;
  readonly progress: (message: string) => void;
}

export interface DrillResult {
  readonly run: Run;
  readonly figures: readonly Figures[];
  readonly errors: Readonly<Record<string, number>>;
}

/** Runs the service of ops/ha under the load of all flows, and breaks one part after the other. */
export async function drill(t: Test, options: DrillOptions): Promise<DrillResult> {
  const { progress, calmMs } = options;
  const place = await openPlace(t);
  const cluster = new DatabaseCluster(t, place, options.replication);
  const front = new Front(t, place, options.pooling);
  const outside = await openOutside(t, await temporaryFolder(t));

  progress('starting etcd, PostgreSQL and Patroni');
  await cluster.start();
  progress('starting HAProxy, PgBouncer, gateways and worker');
  const times = { SPEECH_TIMEOUT_MS: '5000', RECONCILE_INTERVAL_MS: '1000' };
  await front.start(cluster, migrate, { ...outside.settings(true), ...times });
  await cluster.untilReplicated();

  const origin = () => front.url;
  const world: Service = {
    ...{ ...outside.service, gateways: [origin, origin], databaseUrl: front.databaseUrl, env: front.env },
  };
  const attempts: Attempt[] = [];
  const faults: Fault[] = [];
  const begunAt = new Date();
  let end = 0;
  const breakParts = async (now: () => number) => {
    const ofRun = now() - performance.now();
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
    end = performance.now();
    return faults.map(({ name, at, until }) => ({ name, from: at + ofRun, until: until + ofRun, buries: [] }));
  };
  const bookLosses = async () => {
    const caughtUp = await speechgate(front.env, 'reconcile', '--since', begunAt.toISOString(), '--book');
    const hasLost = /Booked by this run: [1-9]/.test(caughtUp.output);
    if (caughtUp.code !== 0 || !hasLost) throw new Error(`no payment was lost, or booked again\n${caughtUp.output}`);
    progress(caughtUp.output);
  };
  const run = await runCallers(t, world, {
    ...{ seed: begunAt.toISOString(), callers: options.callers, observe: recordIn(attempts), breakParts },
    ...(options.faults.includes('lost commits') && { beforeJudging: bookLosses }),
  });
  const contradictions = run.verdict.contradictions.filter((each) => !isOfLoss(each, run.faults));
  return {
    run: { ...run, verdict: { ...run.verdict, contradictions } },
    ...{ figures: figuresOf(attempts, faults, end), errors: errorsBySort(attempts) },
  };
}

/**
 * Callers of that moment may have been told otherwise than the books are now. What was spent from balances may be missing,
 * but nobody is charged twice, or without an answer, or after they were told that they are not. The audit holds for them too.
 */
function isOfLoss({ kind, operation, words }: Contradiction, faults: readonly Struck[]): boolean {
  const losses = faults.filter(({ name }) => name === 'lost commits');
  if (!operation) return losses.length > 0 && /^the sums of .* differ$/.test(words);
  if (kind === 'charged twice') return false;
  const { flow, ended } = operation;
  if (kind === 'paid, not served' && (ended === 'refused' || !/^(direct|deposit)/.test(flow))) return false;
  return losses.some(({ from, until }) => operation.begun_at < until && operation.ended_at > from - CAPTURED_MS);
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
