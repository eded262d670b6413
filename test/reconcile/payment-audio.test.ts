import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import type { AudioStore } from '../../src/audio/audio-store.ts';
import { openDatabase } from '../../src/db/database.ts';
import { expiredPaymentAudio } from '../../src/reconcile/expired-payment-audio.ts';
import { testDatabase } from '../support/database.ts';

/** More than two batches. */
const PAYMENTS = 450;

/** So many payments that have failed, each taken over once, with audio in a store of the test. */
async function setUp(t: Test, deleteAudio: (key: string) => Promise<void>) {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 4 });
  t.teardown(() => db.destroy());
  await sql`
    insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                              valid_before, head_block, fence, settling_at, failed_at)
    select 'failed', n::text, '', 'eip155:8453', '0xa', '0xb', n::text, '0xc', 198, 1, 0, 2, now() - interval '2 days', now() - interval '2 days'
    from generate_series(1, ${PAYMENTS}::int) n`.execute(db);
  const reconciler = expiredPaymentAudio(db, { delete: deleteAudio } as unknown as AudioStore);
  const turn = async () => {
    let count = 0;
    const done = (more: number) => {
      count += more;
    };
    const error = await reconciler
      .run({ signal: new AbortController().signal, done, report: () => {} })
      .catch((error) => error);
    return { count, error };
  };
  return turn;
}

test('one turn deletes the audio of all payments that nobody can ask for, several at a time', async (t) => {
  const deleted: string[] = [];
  let [running, most] = [0, 0];
  const turn = await setUp(t, async (key) => {
    most = Math.max(most, ++running);
    await new Promise(setImmediate);
    running--;
    deleted.push(key);
  });
  assert.deepEqual(await turn(), { count: PAYMENTS, error: undefined });
  assert.equal(new Set(deleted).size, 2 * PAYMENTS, "the former owner's too");
  assert.ok(most > 1 && most <= 8, `${most} at a time`);
  assert.deepEqual(await turn(), { count: 0, error: undefined });
});

test('audio that can not be deleted is tried again in the next turn, and keeps no other waiting', async (t) => {
  let isStuck = true;
  const turn = await setUp(t, async (key) => {
    if (isStuck && key === 'x402/7-1') throw new Error('the store fails');
  });
  const { count, error } = await turn();
  assert.equal(error?.message, 'the store fails');
  assert.equal(count, 199);
  isStuck = false;
  assert.deepEqual(await turn(), { count: PAYMENTS - count, error: undefined });
});
