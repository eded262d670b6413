import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { testChain, usesOfAuthorizations } from '../support/chain.ts';
import type { Attempt } from './prepaid-model.ts';
import type { ClientWallet } from './prepaid-requests.ts';

/** What each wallet owns on the chain. */
export const FUNDS = 1_000_000_000n;

/** Beyond the last lease, for the reconcilers of a busy machine. */
const SETTLING_MS = 20_000;

export const { chain, skip } = await testChain();

/** What the ledger holds of a spend that its client knows the end of. */
const LEDGER_STATES = { charged: 'posted', restored: 'voided' };

/** What the clients know of a wallet is what the ledger holds; what they can't know, the ledger tells them now. */
export async function ledgerAgrees(db: Database, { account, model }: ClientWallet): Promise<void> {
  const address = account.address.toLowerCase();
  const { rows: payments } = await sql<{ identifier: string; state: string; credits: number }>`
    select identifier, state, (select count(*)::int from transfer where kind = 'deposit' and reference = p.id::text)
      as credits
    from x402_payment p where payer = ${address}`.execute(db);
  const paymentOf = new Map(payments.map((payment) => [payment.identifier, payment]));
  for (const deposit of model.deposits.values()) {
    const payment = paymentOf.get(deposit.identifier);
    const isCredited = payment?.credits === 1;
    if (deposit.isCredited) assert.ok(isCredited, 'a deposit that was told to be credited is not');
    else if (isCredited || !payment || payment.state === 'failed') {
      assert.ok(deposit.lost > 0, `a deposit without a lost request is ${payment?.state}, and its clients don't know`);
      model.settleDeposit(deposit, isCredited);
    }
  }
  const credited = payments.filter(({ credits }) => credits === 1);
  assert.ok(credited.every(({ identifier }) => model.deposits.has(identifier)));
  assert.equal((await usesOfAuthorizations(chain.client, account.address)).length, credited.length);

  const { rows: spends } = await sql<{ nonce: string; state: string; amount: bigint }>`
    select reference as nonce, state, amount_micro_usd as amount from transfer
    where kind = 'spend' and debit_account_id = (select id from account where address = ${address})`.execute(db);
  const spendOf = new Map(spends.map((spend) => [spend.nonce, spend]));
  assert.equal(spendOf.size, spends.length, 'two debits for one nonce');
  assert.ok(spends.every(({ nonce }) => model.attempts.has(nonce)));
  for (const [nonce, attempts] of model.attempts) {
    const spend = spendOf.get(nonce);
    const doubtful = attempts.find(({ isDoubtful }) => isDoubtful);
    if (doubtful) model.settleDoubt(doubtful, spend?.state === 'voided');
    const is = (attempt: Attempt, state: string) => spend?.amount === attempt.price && state === spend.state;
    const known = attempts.find(({ end }) => end === 'charged' || end === 'restored');
    const told = `${known?.end}: ${spend?.state} ${spend?.amount}`;
    if (known) assert.ok(is(known, LEDGER_STATES[known.end as keyof typeof LEDGER_STATES]), told);
    const lost = attempts.filter(({ end }) => end === 'lost');
    // What was not delivered is not charged, wherever its process was killed.
    const spender = known ? undefined : lost.find((attempt) => is(attempt, 'voided'));
    assert.ok(!spend || known || spender, `a debit of ${spend?.amount} is ${spend?.state}, and nobody asked for it`);
    for (const attempt of lost) model.settleLost(attempt, attempt === spender ? 'restored' : 'refused');
  }
  const row = await db
    .selectFrom('account')
    .select('balance_micro_usd')
    .where('address', '=', address)
    .executeTakeFirst();
  assert.equal(row?.balance_micro_usd ?? 0n, model.balance);
  const paid = FUNDS - (await usdcBalance(chain.client, account.address));
  assert.equal(paid, model.deposited);
}

/** Each hold ends, at the latest with its lease. */
export async function untilNothingIsHeld(db: Database): Promise<void> {
  const { rows } = await sql<{ milliseconds: number }>`
    select coalesce(extract(epoch from max(lease_until) - now()), 0)::float8 * 1000 as milliseconds
    from transfer where state = 'pending'`.execute(db);
  await untilNone(db, sql`select from transfer where state = 'pending'`, (rows[0]?.milliseconds ?? 0) + SETTLING_MS);
}

/** An authorization that was never sent to the chain can't be used any more once its time is over. */
export async function untilNoPaymentIsOpen(db: Database): Promise<void> {
  await chain.client.increaseTime({ seconds: 600 });
  await chain.client.mine({ blocks: 3 });
  await untilNone(db, sql`select from x402_payment where state not in ('settled', 'failed')`, SETTLING_MS);
}

async function untilNone(db: Database, query: RawBuilder<unknown>, timeoutMs: number): Promise<void> {
  const giveUpAt = performance.now() + timeoutMs;
  while ((await query.execute(db)).rows.length > 0) {
    assert.ok(performance.now() < giveUpAt, `still open after ${timeoutMs} ms`);
    await sleep(200);
  }
}
