import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test from 'node:test';
import { type RawBuilder, sql } from 'kysely';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { creditTopUp } from '../../src/ledger/credit-top-up.ts';
import { placeHold } from '../../src/ledger/hold.ts';
import { testDatabase } from '../support/database.ts';

const CONTRA = sql`'00000000-0000-4000-8000-000000000002'`;

/** Each corruption, and a word of the rules that have to notice it. */
const CORRUPTIONS: [string, (account: string) => RawBuilder<unknown>, RegExp][] = [
  [
    'money that is made up',
    (account) => sql`update account set balance_micro_usd = balance_micro_usd + 1 where id = ${account}`,
    /balances are the posted top-ups|sum of its own transfers/,
  ],
  [
    'money that moves between two accounts without a transfer',
    (account) => sql`
      with thief as (insert into account (kind, balance_micro_usd) values ('card', 7))
      update account set balance_micro_usd = balance_micro_usd - 7 where id = ${account}`,
    /sum of its own transfers/,
  ],
  ['a transfer that is lost', () => sql`delete from transfer where kind = 'charge'`, /sum of its own transfers/],
  [
    'a transfer of nobody',
    () => sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, ended_at)
      values ('charge', 'voided', ${randomUUID()}, ${CONTRA}, 1, now())`,
    /both accounts of a transfer exist/,
  ],
  ['a top-up without its transfer', () => sql`delete from transfer where kind = 'top_up'`, /credited at most once/],
  ['a top-up of another amount', () => sql`update top_up set amount_cents = amount_cents + 1`, /credited at most once/],
  [
    'a transfer without its top-up',
    () => sql`update top_up set state = 'open', credited_at = null`,
    /credited at most once/,
  ],
  [
    'a hold whose lease has passed long ago',
    () => sql`update transfer set lease_until = now() - interval '1 hour' where state = 'pending'`,
    /a hold has ended/,
  ],
];

test('the audit holds on a sound ledger, and each rule can fail', async (t) => {
  for (const [name, corrupt, rule] of CORRUPTIONS) {
    await t.test(name, async (t) => {
      const db = openDatabase((await testDatabase(t)).url, { maxConnections: 2 });
      t.after(() => db.destroy());
      const { accountId } = await creditTopUp(db, {
        topUpId: randomUUID(),
        sessionId: 'cs_test_1',
        accountId: randomUUID(),
        amountCents: 500,
        challengeId: null,
      });
      assert.equal((await placeHold(db, accountId, 100n, 60)).outcome, 'held');
      assert.deepEqual(await audit(db), []);
      await corrupt(accountId).execute(db);
      const broken = (await audit(db)).map((finding) => finding.rule).join('\n');
      assert.match(broken, rule);
    });
  }
});
