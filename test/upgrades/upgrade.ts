import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { type Attempt, isPassing } from '../ha/ask.ts';
import { bySort } from '../ha/figures.ts';
import { type Contradiction, judge } from '../ha/judge.ts';
import { openOutside, servedByFlow, startLoad } from '../ha/load.ts';
import type { TestChain } from '../support/chain.ts';
import { startCommand } from '../support/child.ts';
import { emptyDatabase } from '../support/database.ts';
import { migrateCommand } from '../support/former-release.ts';
import { REPLICATED_URL, type Release, Replicas, THIS_RELEASE } from '../support/replicas.ts';
import { speechgate } from '../support/speechgate.ts';

/** How long the load goes on with the old version alone, with both, with the new one, and with the old one again. */
const PHASE_MS = 3_000;

/** How often the command that migrates is run, as its operator would until it succeeds. */
const TRIES = 5;

/** What callers saw of an upgrade and of going back. */
export interface Upgraded {
  /** Of the command that migrates, with the start of Node.js; `during`: the requests that were under way meanwhile. */
  readonly migrationMs: number;
  /** What the command said each time that it failed, until it was repeated with success. */
  readonly migrateFailed: readonly string[];
  readonly during: number;
  /** In milliseconds. */
  readonly longestDuring: number;
  readonly requests: number;
  readonly served: Readonly<Record<string, number>>;
  /** Requests without a whole answer, or with one that is no part of their flow, by flow and code. */
  readonly failed: Readonly<Record<string, number>>;
  readonly contradictions: readonly Contradiction[];
  readonly audit: { readonly code: number; readonly output: string };
}

export interface Versions {
  readonly before: Release;
  readonly after: Release;
  /** Whether the version before takes over again in the end, as it can from its neighbour. */
  readonly goesBack: boolean;
  /** Whether the version before books each request under its trace id, as all do since 0010. */
  readonly keepsTraces: boolean;
}

/**
 * Under the load of all flows: the version before serves, the version after migrates, both serve, the new one serves
 * alone, and where one can go back, the old one takes over again, on the new schema.
 */
export async function upgrade(
  t: Test,
  chain: TestChain,
  { before, after, goesBack, keepsTraces }: Versions,
): Promise<Upgraded> {
  const { url: databaseUrl } = await emptyDatabase(t);
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-upgrade-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const outside = await openOutside(t, chain, folder);
  const env = { ...outside.env, DATABASE_URL: databaseUrl };
  const migrate = async (release: Release, tries = 1): Promise<string[]> => {
    const faults: string[] = [];
    for (; ; tries--) {
      const child = startCommand(t, migrateCommand(release), {
        env: { DATABASE_URL: databaseUrl },
        ...(release.folder !== undefined && { cwd: release.folder }),
      });
      if ((await child.ended()) === 0) return faults;
      assert.ok(tries > 1, child.output());
      faults.push(/^error: (.+)$/m.exec(child.output())?.[1] ?? child.output());
    }
  };
  await migrate(before);
  const replicas = new Replicas(t, env);
  await replicas.start('old', { release: before });
  const { diary, stop } = await startLoad(chain, outside, {
    ...{ url: REPLICATED_URL, route: (url: string) => replicas.route(url), pauseMs: 50 },
    // Versions from 0014 up to some after 0021 book a deposit for each payment that they settle beside it.
    settlesOneByOne: true,
  });
  await sleep(PHASE_MS);
  const begunAt = performance.now();
  const migrateFailed = await migrate(after, TRIES);
  const endedAt = performance.now();
  await replicas.start('new', { release: after });
  await sleep(PHASE_MS);
  await replicas.leave('old');
  await sleep(PHASE_MS);
  if (goesBack) {
    await replicas.start('old again', { release: before });
    await replicas.leave('new');
    await sleep(PHASE_MS);
  }
  const told = await stop();
  if (after !== THIS_RELEASE) {
    // So that today's rules can be asked. What is still open is ended by who knows this schema.
    await replicas.leave(goesBack ? 'old again' : 'new');
    await migrate(THIS_RELEASE);
    await replicas.start('today');
  }
  const judged = { ...told, ...(!keepsTraces && { attempts: [] }) };
  const contradictions = await judge(databaseUrl, judged).catch((error) => [String(error), replicas.output()]);
  const audit = await speechgate({ ...env, BASE_URL: REPLICATED_URL }, 'audit', '--external');
  const during = diary.attempts.filter(({ at, ms }) => at < endedAt && at + ms > begunAt);
  return {
    ...{ migrationMs: Math.round(endedAt - begunAt), migrateFailed, during: during.length },
    longestDuring: Math.round(Math.max(0, ...during.filter(isTimed).map(({ ms }) => ms))),
    ...{
      requests: diary.attempts.length,
      served: servedByFlow(diary),
      failed: bySort(diary.attempts.filter(isFailure)),
    },
    ...{ contradictions, audit: { code: audit.code, output: audit.output } },
  };
}

/** A challenge is a 402, and a 409 may say that the same request is still being settled. */
const isFailure = (attempt: Attempt): boolean =>
  (attempt.status === 0 || attempt.status >= 400) &&
  !(attempt.status === 402 && attempt.flow.endsWith(', challenge')) &&
  !(attempt.status === 409 && isPassing(attempt));

/** A deposit waits for blocks. */
const isTimed = ({ flow }: Attempt): boolean => flow !== 'deposit';
