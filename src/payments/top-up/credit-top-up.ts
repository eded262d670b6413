import type { Database } from '../../db/database.ts';
import { now } from '../../db/expressions.ts';
import { findBalance, isOfOtherMode } from '../../ledger/accounts.ts';
import { collectDebt, findDebt } from '../../ledger/debts.ts';
import { creditCard } from '../../ledger/transfer.ts';
import { MICRO_USD_PER_CENT } from '../../lib/money.ts';
import { testPoint } from '../../lib/test-point.ts';

interface PaidTopUp {
  readonly topUpId: string;
  readonly sessionId: string;
  readonly accountId: string;
  readonly livemode: boolean;
  readonly amountCents: number;
  readonly taxCents?: number;
  readonly challengeId: string | null;
  readonly paymentIntentId?: string | null;
}

export interface TopUpCredit {
  readonly accountId: string;
  readonly balanceMicroUsd: bigint;
  readonly debtPaidMicroUsd: bigint;
  readonly debtMicroUsd: bigint;
  readonly wasCredited: boolean;
}

export class OtherModeError extends Error {}

/**
 * Credits a paid checkout session once, with its whole amount: what a request leaves over stays on the balance (R16). Pays
 * the account's debt in the same transaction (R61). A missing top_up row is written, for example after a restore. It is
 * no upsert by id, because beside a concurrent update that may insert and violate the session's unique index.
 * @throws OtherModeError, with nothing credited, if the account is of the other mode
 */
export async function creditTopUp(db: Database, paid: PaidTopUp): Promise<TopUpCredit> {
  const credited = await db.transaction().execute(async (trx) => {
    const account = await bookCredit(trx, paid);
    if (!account) return undefined;
    testPoint('credit booked');
    const { accountId, balanceMicroUsd, isIndebted } = account;
    const { paid: debtPaidMicroUsd, owed } = isIndebted ? await collectDebt(trx, accountId) : { paid: 0n, owed: 0n };
    const balance = { balanceMicroUsd: balanceMicroUsd - debtPaidMicroUsd, debtPaidMicroUsd, debtMicroUsd: owed };
    return { accountId, ...balance, wasCredited: false };
  });
  testPoint('purchase credited');
  if (credited) return credited;
  const known = await db
    .selectFrom('top_up')
    .select(['account_id', 'state'])
    .where('id', '=', paid.topUpId)
    .executeTakeFirst();
  if (known?.state === 'credited') {
    const { account_id: accountId } = known;
    const [balanceMicroUsd, debtMicroUsd] = [await findBalance(db, accountId), await findDebt(db, accountId)];
    return { accountId, balanceMicroUsd, debtPaidMicroUsd: 0n, debtMicroUsd, wasCredited: true };
  }
  if (await isOfOtherMode(db, known?.account_id ?? paid.accountId, paid.livemode))
    throw new OtherModeError(
      'the purchase and the account are of different modes (test and live), so nothing was credited',
    );
  throw new Error(
    'the checkout session already belongs to another purchase, so nothing was credited. Compare both purchases with the session at the card processor',
  );
}

async function bookCredit(trx: Database, paid: PaidTopUp) {
  const accountId = await recordCredited(trx, paid);
  if (accountId === undefined) return undefined;
  const { livemode, sessionId: reference } = paid;
  const amountMicroUsd = BigInt(paid.amountCents) * MICRO_USD_PER_CENT;
  return { accountId, ...(await creditCard(trx, { accountId, livemode, amountMicroUsd, reference })) };
}

/** Returns the account to credit; undefined if the purchase is credited already, or its account is of the other mode. */
async function recordCredited(trx: Database, paid: PaidTopUp): Promise<string | undefined> {
  const credited = {
    state: 'credited',
    session_id: paid.sessionId,
    amount_cents: paid.amountCents,
    tax_cents: paid.taxCents ?? 0,
    payment_intent_id: paid.paymentIntentId ?? null,
    credited_at: now,
  };
  const known = await trx
    .selectFrom('top_up')
    .select(['account_id', 'state'])
    .where('id', '=', paid.topUpId)
    .forUpdate()
    .executeTakeFirst();
  const accountId = known?.account_id ?? paid.accountId;
  if (known?.state === 'credited' || (await isOfOtherMode(trx, accountId, paid.livemode))) return undefined;
  const { topUpId: id, challengeId: challenge_id } = paid;
  const written = known
    ? trx.updateTable('top_up').set(credited).where('id', '=', id).returning('account_id')
    : trx
        .insertInto('top_up')
        .values({ id, account_id: accountId, challenge_id, ...credited })
        .onConflict((oc) => oc.doNothing())
        .returning('account_id');
  return (await written.executeTakeFirst())?.account_id;
}

/** Finds the credited purchase and account of a payment of the processor; undefined if there is none. */
export async function purchaseOfPayment(db: Database, paymentIntentId: string) {
  return db
    .selectFrom('top_up')
    .select(['id as topUpId', 'account_id as accountId', 'amount_cents as amountCents', 'tax_cents as taxCents'])
    .where('payment_intent_id', '=', paymentIntentId)
    .where('state', '=', 'credited')
    .executeTakeFirst();
}

export async function purchaseStates(db: Database, sessionIds: readonly string[]) {
  const purchases = db.selectFrom('top_up').select(['session_id', 'state']);
  const rows = await purchases.where('session_id', 'in', sessionIds).execute();
  return new Map(rows.map(({ session_id, state }) => [session_id ?? '', state]));
}
