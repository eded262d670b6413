import assert from 'node:assert/strict';
import { test } from 'tap';
import { testChain } from '../support/chain.ts';
import { commitBefore, formerRelease } from '../support/former-release.ts';
import { migrationFiles } from '../support/migrations.ts';
import { THIS_RELEASE } from '../support/replicas.ts';
import { upgrade } from './upgrade.ts';

const { chain, skip } = await testChain();
const newest = (await migrationFiles()).at(-1)?.name ?? '';
const before = commitBefore(newest);

test(`${newest}: the version before it and this one serve together while it runs, and one version back works`, {
  skip: skip || (before === undefined && 'the history does not go back to the version before'),
}, async (t) => {
  const result = await upgrade(t, chain, await formerRelease(t, before as string), THIS_RELEASE);
  t.comment(JSON.stringify({ ...result, audit: undefined }));
  assert.deepEqual(result.failed, {});
  assert.deepEqual(result.contradictions, []);
  assert.equal(result.audit.code, 0, result.audit.output);
  for (const flow of ['card', 'card, streamed', 'job', 'top-up, completed', 'direct', 'deposit', 'prepaid']) {
    assert.ok((result.served[flow] ?? 0) > 0, `${flow} was served`);
  }
});
