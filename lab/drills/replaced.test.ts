import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { errorsBySort } from '../../lab/ha/figures.ts';
import { judge } from '../../lab/ha/judge.ts';
import { openOutside, servedByFlow, startLoad } from '../../lab/ha/load.ts';
import { testChain } from '../../test/support/chain.ts';
import { testDatabase } from '../../test/support/database.ts';
import { REPLICATED_URL, Replicas, type Start } from '../../test/support/replicas.ts';
import { speechgate } from '../../test/support/speechgate.ts';

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
const { chain, skip } = await testChain();

test('replacing gateways and a worker under load interrupts no caller', {
  skip,
}, async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-replaced-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const outside = await openOutside(t, chain, folder);
  const env = { ...outside.env, DATABASE_URL: databaseUrl };
  const replicas = new Replicas(t, { ...env, STOP_DRAIN_MS: DRAIN_MS });
  await Promise.all(Object.entries(PARTS).map(([name, part]) => replicas.start(name, part)));
  const { diary, stop } = await startLoad(chain, outside, {
    ...{ url: REPLICATED_URL, route: (url: string) => replicas.route(url) },
    ...{ pauseMs: 60, cardCallers: [4, 6] },
  });
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, part] of Object.entries(PARTS)) {
      await sleep(BETWEEN_MS);
      t.equal(await replicas.stop(name), 0);
      await replicas.start(name, part);
    }
  }
  const told = await stop();
  const resets = diary.attempts.filter(({ status }) => status === 0).length;
  const served = servedByFlow(diary);
  console.error(
    `${3 * ROUNDS} replaced, ${diary.attempts.length} requests, ${resets} resets; served ${JSON.stringify(served)}`,
  );
  t.strictSame(errorsBySort(diary.attempts), {});
  t.ok((served.job ?? 0) > 0, 'the worker had something to do');
  t.strictSame(await judge(databaseUrl, told), []);
  const audit = await speechgate({ ...env, BASE_URL: REPLICATED_URL }, 'audit', '--external');
  t.equal(audit.code, 0, audit.output);
});
