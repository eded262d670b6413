import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { findWallet } from '../../src/ledger/wallets.ts';
import { bookSettlements } from '../../src/x402/book-settlement.ts';
import { testDatabase } from '../support/database.ts';
import { addDoubtfulPayment } from '../support/prepaid.ts';

const [ONE, TWO] = [`0x${'1'.repeat(40)}`, `0x${'2'.repeat(40)}`];

test('payments of speech and deposits that are settled in one statement: each is booked once, to its own payer', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const payments = [
    await addDoubtfulPayment(db, ONE, 198n, 'speech'),
    await addDoubtfulPayment(db, ONE, 100_000n),
    await addDoubtfulPayment(db, TWO, 200_000n),
    await addDoubtfulPayment(db, TWO, 396n, 'speech'),
  ];
  const booked = await bookSettlements(
    db,
    payments.map((id, logIndex) => ({
      ...{ id, receipt: 'receipt' },
      proof: { transaction: `0x${randomBytes(32).toString('hex')}`, logIndex },
    })),
  );

  assert.deepEqual(
    booked.map((booking) => booking?.isNew),
    [true, true, true, true],
  );
  const { rows } = await sql<{ kind: string; reference: string; address: string | null; amount: bigint }>`
    select transfer.kind, reference, address, amount_micro_usd as amount
    from transfer join account on account.id = credit_account_id order by reference::bigint`.execute(db);
  assert.deepEqual(rows, [
    { kind: 'settlement', reference: String(payments[0]), address: null, amount: 198n },
    { kind: 'deposit', reference: String(payments[1]), address: ONE, amount: 100_000n },
    { kind: 'deposit', reference: String(payments[2]), address: TWO, amount: 200_000n },
    { kind: 'settlement', reference: String(payments[3]), address: null, amount: 396n },
  ]);
  assert.deepEqual([await findWallet(db, ONE), await findWallet(db, TWO)], [100_000n, 200_000n]);
  assert.deepEqual(await audit(db), []);
});
