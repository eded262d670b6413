/**
 * `npm run upgrades -- [--only 0017,0020] [--write]`: each version that the history has since the first release, and the
 * next one, and this one, serve together under load while the schema is brought up to date. Prints tables of what callers
 * saw; `--write` puts them into docs/operations.md. Exits with 1 when an upgrade to this version failed requests or left
 * books that contradict what callers were told; what former versions did to each other is only told.
 */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { t as root, type Test, test } from 'tap';
import { compileService } from '../compile.ts';
import { testChain } from '../support/chain.ts';
import { type FormerRelease, formerRelease, formerReleases } from '../support/former-release.ts';
import { migrationFiles } from '../support/migrations.ts';
import { THIS_RELEASE } from '../support/replicas.ts';
import { contradictionsOf, type Row, report, writeDocs } from './report.ts';
import { upgrade } from './upgrade.ts';

const LONGEST_MS = 6 * 3_600_000;

const args = process.argv.slice(2);
const { values } = parseArgs({
  args,
  options: {
    /** Numbers of migrations, with commas between them. */
    only: { type: 'string' },
    write: { type: 'boolean', default: false },
  },
});
if (values.write && values.only !== undefined) throw new Error('Only a run of all migrations goes into the docs.');
const wanted = values.only?.split(',');
root.setTimeout(LONGEST_MS);

// Else each start of this version would compile it.
const service = await compileService(fileURLToPath(new URL('../..', import.meta.url)));
process.env.TEST_SERVICE = service.folder;
root.teardown(() => service.remove());

const { chain, skip } = await testChain();
const releases = formerReleases();
const newest = (await migrationFiles()).map(({ name }) => name);
const begunAt = performance.now();
const rows: Row[] = [];

for (const [index, release] of releases.entries()) {
  const next = releases[index + 1];
  const applied = (next?.migrations ?? newest).slice(release.migrations.length);
  if (wanted && !applied.some((name) => wanted.some((number) => name.startsWith(number)))) continue;
  if (next) await run(release, next, applied);
  await run(release, undefined, newest.slice(release.migrations.length));
}
const text = await report(rows, ['npm run upgrades', ...(args.length > 0 ? ['--', ...args] : [])].join(' '), minutes());
console.log(text);
if (values.write) await writeDocs(text);

/** @param to this version where it is undefined */
async function run(from: FormerRelease, to: FormerRelease | undefined, migrations: readonly string[]): Promise<void> {
  const name = `${migrations.join(', ')}, to ${to?.commit ?? 'this version'}`;
  await test(name, { skip, timeout: LONGEST_MS }, async (t) => {
    const outcome = await tried(t, from, to).catch((error: Error) => {
      t.comment(error.message);
      return /error: .*/i.exec(error.message)?.[0] ?? String(error.message.split('\n')[0]);
    });
    rows.push({ from: from.commit, to: to?.commit, migrations, outcome });
    t.comment(JSON.stringify(outcome));
    if (to !== undefined) return;
    assert.ok(typeof outcome === 'object', String(outcome));
    assert.deepEqual([outcome.migrateFailed, outcome.failed], [[], {}]);
    assert.deepEqual(contradictionsOf(outcome), []);
  });
}

async function tried(t: Test, from: FormerRelease, to: FormerRelease | undefined) {
  const before = await formerRelease(t, from.commit);
  const after = to ? await formerRelease(t, to.commit) : THIS_RELEASE;
  return upgrade(t, chain, {
    ...{ before, after, goesBack: to !== undefined || from === releases.at(-1) },
    keepsTraces: from.migrations.includes('0010_sealed_books'),
  });
}

function minutes(): number {
  return (performance.now() - begunAt) / 60_000;
}
