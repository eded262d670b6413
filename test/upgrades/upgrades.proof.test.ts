import assert from 'node:assert/strict';
import { test } from 'tap';
import { testChain } from '../support/chain.ts';
import { type FormerRelease, formerRelease, formerReleases } from '../support/former-release.ts';
import { migrationFiles } from '../support/migrations.ts';
import { THIS_RELEASE } from '../support/replicas.ts';
import { upgrade } from './upgrade.ts';

const { chain, skip } = await testChain();
const newest = (await migrationFiles()).at(-1)?.name ?? '';
const before = formerReleases().at(-1);

test(`${newest}: the version before it and this one serve together while it runs, and one version back works`, {
  skip: skip || (before === undefined && 'the history does not go back to the version before'),
}, async (t) => {
  const former = await formerRelease(t, (before as FormerRelease).commit);
  const result = await upgrade(t, chain, { before: former, after: THIS_RELEASE, goesBack: true, keepsTraces: true });
  t.comment(JSON.stringify({ ...result, audit: undefined }));
  assert.deepEqual([result.migrateFailed, result.failed], [[], {}]);
  assert.deepEqual(result.contradictions, []);
  assert.equal(result.audit.code, 0, result.audit.output);
  for (const flow of ['card', 'card, streamed', 'job', 'top-up, completed', 'direct', 'deposit', 'prepaid']) {
    assert.ok((result.served[flow] ?? 0) > 0, `${flow} was served`);
  }
});
