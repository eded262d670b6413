/** The commands of callers where this machine is at fault; none of them asks a service. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { SavedPurchases } from '../../../src/callers/cli/saved-purchases.ts';
import type { PendingPurchase } from '../../../src/callers/client/index.ts';
import { speechgate } from '../../support/speechgate.ts';

const NOBODY = 'http://127.0.0.1:1';
const PENDING: PendingPurchase = {
  ...{ flow: 'direct', kind: 'speech', identifier: 'pay', baseUrl: NOBODY, method: 'POST', target: '/x402/tts' },
  ...{ headers: {}, body: '{}', maxMicroUsd: '198', expiresAt: null },
};

async function settings(t: Test): Promise<{ folder: string; env: Record<string, string> }> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-faults-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return { folder, env: { SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: NOBODY } };
}

test('a damaged budget is reported in one line, or as one JSON document', async (t) => {
  const { folder, env } = await settings(t);
  await writeFile(join(folder, 'budget.jsonl'), 'no budget at all\n'.repeat(10), { mode: 0o600 });
  const [line, document] = await Promise.all([speechgate(env, 'budget'), speechgate(env, 'budget', '--json')]);
  assert.deepEqual([line.code, line.out], [1, '']);
  assert.match(
    line.err,
    /^\S+budget\.jsonl is not a valid budget \(.+\)\. Restore it from a backup, or move it away .+\n$/,
  );
  const { error } = JSON.parse(document.err);
  assert.deepEqual([document.code, document.out, error.code, error.exit], [1, '', 'BUDGET_DAMAGED', 1]);
});

test('resume continues with other purchases when one file cannot be written', async (t) => {
  const { folder, env } = await settings(t);
  const kept = new SavedPurchases(folder);
  const out = join(folder, 'gone', 'hello.mp3');
  for (const identifier of ['pay_first', 'pay_second']) {
    await kept.save({ ...PENDING, identifier }, out);
  }
  const { code, out: told, err } = await speechgate(env, 'resume', '--json');
  const { purchases } = JSON.parse(told || err);
  assert.deepEqual(
    purchases.map(({ identifier, outcome }: Record<string, string>) => [identifier, outcome]),
    ['pay_first', 'pay_second'].map((identifier) => [identifier, 'not_written']),
  );
  assert.match(purchases[0].message, /there is no such folder/);
  assert.equal(purchases[0].resume, 'speechgate resume pay_first --out FILE');
  assert.deepEqual([code, (await kept.list()).length], [1, 2]);
});

test('connect --sandbox refuses options that the sandbox sets itself', async (t) => {
  const { env } = await settings(t);
  const { code, err } = await speechgate(env, 'connect', '--sandbox', '--wallet', 'create');
  assert.deepEqual(
    [code, err],
    [2, '--wallet conflicts with --sandbox, which has its own account, wallet and keys. Remove --wallet.\n'],
  );
});
