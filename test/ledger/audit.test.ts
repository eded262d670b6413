import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test from 'node:test';
import { type RawBuilder, sql } from 'kysely';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { bookSettlement } from '../../src/ledger/book-settlement.ts';
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
  [
    'a settled payment without its revenue',
    () => sql`delete from transfer where kind = 'settlement'`,
    /exactly one settlement/,
  ],
  [
    'revenue of another amount than was paid',
    () => sql`update transfer set amount_micro_usd = 197 where kind = 'settlement'`,
    /exactly one settlement/,
  ],
  [
    'revenue of a payment that is not settled',
    () => sql`
      update x402_payment set state = 'unknown', settled_at = null, transaction_hash = null, log_index = null,
        receipt = null
      where identifier = 'settled'`,
    /exactly one settlement/,
  ],
  ['revenue of no payment', () => sql`delete from x402_payment where identifier = 'settled'`, /exactly one settlement/],
  [
    'one transfer on the chain for two payments',
    () => sql`
      alter table x402_payment drop constraint x402_payment_network_transaction_hash_log_index_key;
      update x402_payment set transaction_hash = '0x01', log_index = 0 where identifier = 'unknown'`,
    /pays for one payment at most/,
  ],
  [
    'a payment whose process died long ago',
    () => sql`
      update x402_payment set state = 'settling', lease_until = now() - interval '1 hour' where identifier = 'unknown'`,
    /within its lease/,
  ],
];

/** A settled payment with its revenue, and one whose end is unknown. */
async function addPayments(db: Database): Promise<void> {
  for (const identifier of ['settled', 'unknown']) {
    await sql`
      insert into x402_payment (identifier, state, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                                valid_before, head_block, settling_at)
      values (${identifier}, 'unknown', '', 'eip155:8453', '0xa', '0xb', ${identifier}, '0xc', 198, 0, 0, now())`.execute(
      db,
    );
  }
  const { id } = await db
    .selectFrom('x402_payment')
    .select('id')
    .where('identifier', '=', 'settled')
    .executeTakeFirstOrThrow();
  assert.equal(await bookSettlement(db, id, { transaction: '0x01', logIndex: 0 }, 'receipt'), 'receipt');
  assert.equal(await bookSettlement(db, id, { transaction: '0x02', logIndex: 1 }, 'another'), 'receipt');
}

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
      await addPayments(db);
      assert.equal((await placeHold(db, accountId, 100n, 60)).outcome, 'held');
      assert.deepEqual(await audit(db), []);
      await corrupt(accountId).execute(db);
      const broken = (await audit(db)).map((finding) => finding.rule).join('\n');
      assert.match(broken, rule);
    });
  }
});
