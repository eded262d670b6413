/**
 * `npm run lab -- ha [--mode session|transaction] [--names] [--pgbouncer PROGRAM] [--rounds N] [--asynchronous]`: runs the
 * service of ops/ha under the load of all flows and breaks one part after the other, a few minutes for each round. Exit
 * code: 0 when callers and books agree, 1 when not, 2 when it could not run.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { migrate } from '../../src/db/migrate.ts';
import { speechgate } from '../../test/support/speechgate.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import type { Struck } from '../soak/faults.ts';
import type { Contradiction } from '../soak/judge.ts';
import { report, runCallers, runProgram } from '../soak/run.ts';
import { openOutside } from '../soak/world/outside.ts';
import { DatabaseCluster, type Death } from './database-cluster.ts';
import { type Attempt, errorsBySort, type Fault, figuresOf, recordIn } from './figures.ts';
import { Front } from './front.ts';
import { openPlace, withoutPrograms } from './place.ts';

type Part = Death | 'gateway one' | 'gateway two' | 'pgbouncer';

const ROUND: readonly Part[] = ['postgres', 'gateway one', 'machine', 'gateway two', 'pgbouncer'];
const LOSSY_ROUND: readonly Part[] = ['lost commits', 'gateway one'];
/** Load before the first fault and after each recovery. */
const CALM_MS = 15_000;
const CALLERS = 10;
const TIMES = { SPEECH_TIMEOUT_MS: '5000', RECONCILE_INTERVAL_MS: '1000' };
/** What is delivered is captured within this time. */
const CAPTURED_MS = 1_000;

await runProgram(async (owner) => {
  const { values } = parseArgs({
    options: {
      mode: { type: 'string', default: 'transaction' },
      /** Named statements in transaction mode. Needs PgBouncer 1.21 or later. */
      names: { type: 'boolean', default: false },
      pgbouncer: { type: 'string', default: 'pgbouncer' },
      rounds: { type: 'string', default: '2' },
      /** Asynchronous replication: the last commits are lost with the primary. */
      asynchronous: { type: 'boolean', default: false },
    },
  });
  if (withoutPrograms) throw new Error(withoutPrograms);
  const { asynchronous: isAsynchronous, pgbouncer } = values;
  const mode = values.mode === 'session' ? 'session' : 'transaction';
  const round = isAsynchronous ? LOSSY_ROUND : ROUND;
  const parts = Array.from({ length: Number(values.rounds) }, () => round).flat();
  const startedAt = performance.now();
  const progress = (message: string) =>
    console.error(`${Math.round((performance.now() - startedAt) / 1000)} s  ${message}`);

  const place = await openPlace(owner);
  const cluster = new DatabaseCluster(owner, place, isAsynchronous ? 'asynchronous' : 'synchronous');
  const front = new Front(owner, place, {
    ...{ mode, namedStatements: values.names || mode === 'session', pgbouncer },
  });
  const outside = await openOutside(owner, await temporaryFolder(owner));
  progress('starting etcd, PostgreSQL and Patroni');
  await cluster.start();
  progress('starting HAProxy, PgBouncer, gateways and worker');
  await front.start(cluster, migrate, { ...outside.settings(true), ...TIMES });
  await cluster.untilReplicated();

  const attempts: Attempt[] = [];
  const faults: Fault[] = [];
  const begunAt = new Date();
  let end = 0;
  const breakParts = async (now: () => number) => {
    const ofRun = now() - performance.now();
    await sleep(CALM_MS);
    for (const name of parts) {
      progress(name);
      const at = performance.now();
      const recover = await strike(name, cluster, front);
      faults.push({ name, at, until: performance.now() });
      progress(`${name}: over after ${Math.round((performance.now() - at) / 100) / 10} s`);
      await sleep(CALM_MS);
      await recover();
    }
    end = performance.now();
    return faults.map(({ name, at, until }) => ({ name, from: at + ofRun, until: until + ofRun }));
  };
  const bookLosses = async () => {
    const caughtUp = await speechgate(front.env, 'reconcile', '--since', begunAt.toISOString(), '--book');
    const hasLost = /Booked by this run: [1-9]/.test(caughtUp.output);
    if (caughtUp.code !== 0 || !hasLost) throw new Error(`no payment was lost, or booked again\n${caughtUp.output}`);
    progress(caughtUp.output);
  };
  const origin = () => front.url;
  const run = await runCallers(
    owner,
    { ...outside.service, gateways: [origin, origin], databaseUrl: front.databaseUrl, env: front.env },
    {
      ...{ seed: begunAt.toISOString(), callers: CALLERS, observe: recordIn(attempts), breakParts },
      ...(isAsynchronous && { beforeJudging: bookLosses }),
    },
  );
  console.table(figuresOf(attempts, faults, end));
  console.table(errorsBySort(attempts));
  const contradictions = run.verdict.contradictions.filter((each) => !isOfLoss(each, run.faults));
  return report({ ...run, verdict: { ...run.verdict, contradictions } });
});

/**
 * Callers of that moment may have been told otherwise than the books are now. What was spent from balances may be missing,
 * but nobody is charged twice, or without an answer, or after they were told that they are not. The audit holds for them too.
 */
function isOfLoss({ kind, operation }: Contradiction, faults: readonly Struck[]): boolean {
  if (!operation || kind === 'charged twice') return false;
  const { flow, ended } = operation;
  if (kind === 'paid, not served' && (ended === 'refused' || !/^(direct|deposit)/.test(flow))) return false;
  return faults.some(
    ({ name, from, until }) =>
      name === 'lost commits' && operation.begun_at < until && operation.ended_at > from - CAPTURED_MS,
  );
}

/** Breaks one part and waits until the service has recovered. @returns a function that restores the part */
async function strike(name: Part, cluster: DatabaseCluster, front: Front): Promise<() => Promise<void>> {
  if (name === 'pgbouncer') {
    await front.restartPgbouncer();
    return async () => {};
  }
  if (name === 'gateway one' || name === 'gateway two') {
    const code = await front.replaceGateway(name === 'gateway one' ? 'one' : 'two');
    if (code !== 0) throw new Error(`${name} has stopped with ${code}\n${front.output()}`);
    return async () => {};
  }
  const dead = await cluster.killPrimary(name);
  await cluster.untilTakenOver(dead);
  return () => cluster.revive(dead);
}
