import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import type { Attempt } from '../ha/ask.ts';
import { errorsBySort } from '../ha/figures.ts';
import { type Contradiction, judge } from '../ha/judge.ts';
import { openOutside, servedByFlow, startLoad } from '../ha/load.ts';
import type { TestChain } from '../support/chain.ts';
import { startCommand } from '../support/child.ts';
import { emptyDatabase } from '../support/database.ts';
import { migrateCommand } from '../support/former-release.ts';
import { REPLICATED_URL, type Release, Replicas, THIS_RELEASE } from '../support/replicas.ts';
import { speechgate } from '../support/speechgate.ts';

/** Under load: with one version alone, with both, with the new one, and with the old one again. */
const PHASE_MS = 3_000;

/** What callers saw of an upgrade and of going back. */
export interface Upgraded {
  /** While the migration ran, in milliseconds, and the requests that were under way then. */
  readonly migrationMs: number;
  readonly during: number;
  /** In milliseconds. */
  readonly longestDuring: number;
  readonly requests: number;
  readonly served: Readonly<Record<string, number>>;
  /** Requests that failed, by flow and code. */
  readonly failed: Readonly<Record<string, number>>;
  readonly contradictions: readonly Contradiction[];
  readonly audit: { readonly code: number; readonly output: string };
}

/**
 * Under the load of all flows: the version before serves, the version after migrates, both serve, the new one serves
 * alone, and the old one takes over again, on the new schema.
 */
export async function upgrade(t: Test, chain: TestChain, before: Release, after: Release): Promise<Upgraded> {
  const { url: databaseUrl } = await emptyDatabase(t);
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-upgrade-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const outside = await openOutside(t, chain, folder);
  const env = { ...outside.env, DATABASE_URL: databaseUrl };
  const migrate = async (release: Release): Promise<void> => {
    const child = startCommand(t, migrateCommand(release), {
      env: { DATABASE_URL: databaseUrl },
      ...(release.folder !== undefined && { cwd: release.folder }),
    });
    assert.equal(await child.ended(), 0, child.output());
  };
  await migrate(before);
  const replicas = new Replicas(t, env);
  await replicas.start('old', before);
  const { diary, stop } = await startLoad(chain, outside, {
    ...{ url: REPLICATED_URL, route: (url: string) => replicas.route(url), pauseMs: 50 },
  });
  await sleep(PHASE_MS);
  const begunAt = performance.now();
  await migrate(after);
  const endedAt = performance.now();
  await replicas.start('new', after);
  await sleep(PHASE_MS);
  await replicas.leave('old');
  await sleep(PHASE_MS);
  await replicas.start('old again', before);
  await replicas.leave('new');
  await sleep(PHASE_MS);
  const told = await stop();
  // Whatever is newer than the version after, so that today's rules can be asked.
  await migrate(THIS_RELEASE);
  const contradictions = await judge(databaseUrl, told).catch((error) => [String(error), replicas.output()]);
  const audit = await speechgate({ ...env, BASE_URL: REPLICATED_URL }, 'audit', '--external');
  const during = diary.attempts.filter(({ at, ms }) => at < endedAt && at + ms > begunAt);
  return {
    ...{ migrationMs: Math.round(endedAt - begunAt), during: during.length },
    longestDuring: Math.round(Math.max(0, ...during.filter(isTimed).map(({ ms }) => ms))),
    ...{ requests: diary.attempts.length, served: servedByFlow(diary), failed: errorsBySort(diary.attempts) },
    ...{ contradictions, audit: { code: audit.code, output: audit.output } },
  };
}

/** A deposit waits for blocks. */
const isTimed = ({ flow }: Attempt): boolean => flow !== 'deposit';
