import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { type Attempt, errorsBySort, recordIn } from '../../lab/ha/figures.ts';
import { isClean } from '../../lab/soak/report.ts';
import { runCallers } from '../../lab/soak/run.ts';
import { openOutside } from '../../lab/soak/world/outside.ts';
import { testDatabase } from '../../test/support/database.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { REPLICATED_URL, Replicas, type Start } from './replicas.ts';

/** How often each of them is replaced; the proof has little time. */
const ROUNDS = Number(process.env.REPLACEMENTS ?? 1);
const BETWEEN_MS = 500;
/** Longer than the balancer needs to learn of it, also on a busy machine. */
const DRAIN_MS = '4000';
/** A gateway of two processes, one of a single process, and a worker. */
const PARTS: Readonly<Record<string, Start>> = {
  one: { args: ['--role=web'], env: { WEB_CONCURRENCY: '2' } },
  worker: { args: ['--role=worker'] },
  two: { args: ['--role=web'] },
};

test('replacing gateways and a worker under load interrupts no caller', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const outside = await openOutside(t, await temporaryFolder(t));
  const env = {
    ...{ ...outside.settings(true), DATABASE_URL: databaseUrl, STOP_DRAIN_MS: DRAIN_MS },
    ...{ BASE_URL: REPLICATED_URL, SPEECH_TIMEOUT_MS: '5000', RECONCILE_INTERVAL_MS: '1000' },
  };
  const replicas = new Replicas(t, env);
  await Promise.all(Object.entries(PARTS).map(([name, part]) => replicas.start(name, part)));
  const origin = () => replicas.origin();
  const world = { ...outside.service, gateways: [origin, origin] as const, databaseUrl, env };
  const attempts: Attempt[] = [];
  const breakParts = async () => {
    for (let round = 0; round < ROUNDS; round++) {
      for (const [name, part] of Object.entries(PARTS)) {
        await sleep(BETWEEN_MS);
        t.equal(await replicas.stop(name), 0);
        await replicas.start(name, part);
      }
    }
    return [];
  };
  const run = await runCallers(t, world, {
    ...{ seed: databaseUrl, callers: 12, observe: recordIn(attempts), breakParts },
  });
  console.error(`${3 * ROUNDS} replaced, ${attempts.length} requests, ${run.operations} operations`);
  t.strictSame(errorsBySort(attempts), {});
  t.ok(
    run.verdict.ends.some(({ flow, ended }) => flow === 'job' && ended === 'served'),
    'the worker had something to do',
  );
  t.strictSame(run.verdict.contradictions, []);
  t.ok(isClean(run.verdict), 'callers and books agree');
});
