import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { collectDebt, debtOf } from '../ledger/debts.ts';
import { balanceOf, creditCard, isOfOtherMode } from '../ledger/top-up-transfer.ts';
import { MICRO_USD_PER_CENT } from '../lib/money.ts';
import { testPoint } from '../lib/test-point.ts';

/** One purchase of credit, as the processor's paid session tells it (R16). */
export interface PaidTopUp {
  /** Id of our top_up row, from the session's metadata. */
  readonly topUpId: string;
  readonly sessionId: string;
  /** The account to credit, from the session's metadata; it is created when it does not exist. */
  readonly accountId: string;
  /** The session's mode, to which an account belongs from its first credit on. */
  readonly livemode: boolean;
  readonly amountCents: number;
  readonly challengeId: string | null;
  /** By which the processor's refunds and disputes name the purchase. */
  readonly paymentIntentId?: string | null;
}

export interface TopUpCredit {
  readonly accountId: string;
  readonly balanceMicroUsd: bigint;
  /** What of it paid a debt at once, in micro-USD (R61); 0 when it was credited before. */
  readonly debtPaidMicroUsd: bigint;
  /** What the account still owes, in micro-USD. */
  readonly debtMicroUsd: bigint;
  readonly alreadyCredited: boolean;
}

/** Of one credit: each further one means that a row was deleted meanwhile. */
const MOST_TRIES = 3;

/** The processor's test mode and its live mode share no account. */
export class OtherModeError extends Error {}

/**
 * Credits a paid checkout session, once: whoever comes second, or at the same moment, finds it credited. What the account
 * owes is paid from it in the same transaction (R61). The credit is one statement. The top_up row is written when it is missing, as after a restore of the database. It is not
 * an upsert by id: beside a concurrent update one may miss the row, insert, and fail on the session's unique index.
 * @throws OtherModeError with nothing credited, when the account is of the other mode
 */
export async function creditTopUp(db: Database, paid: PaidTopUp, tries = MOST_TRIES): Promise<TopUpCredit> {
  const credited = await db.transaction().execute(async (trx) => {
    const account = await bookCredit(trx, paid);
    if (!account) return undefined;
    testPoint('credit booked');
    const { accountId, balanceMicroUsd, isIndebted } = account;
    const { paid: debtPaidMicroUsd, owed } = isIndebted ? await collectDebt(trx, accountId) : { paid: 0n, owed: 0n };
    return {
      ...{ accountId, balanceMicroUsd: balanceMicroUsd - debtPaidMicroUsd, debtPaidMicroUsd, debtMicroUsd: owed },
      alreadyCredited: false,
    };
  });
  testPoint('purchase credited');
  if (credited) return credited;
  const existing = await statement<{ account_id: string; balance: bigint; debt: bigint }>`
    select account_id, ${balanceOf(fragment`account_id`)} as balance, ${debtOf(fragment`account_id`)} as debt
    from top_up where id = ${paid.topUpId} and state = 'credited'`.execute(db);
  if (existing.rows[0]) {
    const { account_id: accountId, balance: balanceMicroUsd, debt: debtMicroUsd } = existing.rows[0];
    return { accountId, balanceMicroUsd, debtPaidMicroUsd: 0n, debtMicroUsd, alreadyCredited: true };
  }
  const { rows: refused } = await statement`
    select from (select coalesce((select account_id from top_up where id = ${paid.topUpId}), ${paid.accountId}::uuid) as id) paid
    where ${isOfOtherMode(fragment`paid.id`, paid.livemode)}`.execute(db);
  if (refused.length > 0) throw new OtherModeError('a session of the one mode does not credit an account of the other');
  // The statement still saw the row of a purchase that came to nothing, and that was deleted before it was locked.
  if (tries > 1) return creditTopUp(db, paid, tries - 1);
  throw new Error('the session is recorded as that of another purchase');
}

/** Undefined when there was nothing to credit. */
async function bookCredit(trx: Database, paid: PaidTopUp) {
  const money = { ...paid, amountMicroUsd: BigInt(paid.amountCents) * MICRO_USD_PER_CENT };
  const { rows } = await statement<{ account_id: string; balance: bigint; is_indebted: boolean }>`
    with recorded as (
      update top_up set state = 'credited', credited_at = now(), session_id = ${paid.sessionId},
                        amount_cents = ${paid.amountCents}, payment_intent_id = ${paid.paymentIntentId ?? null}
      where id = ${paid.topUpId} and state <> 'credited' and not ${isOfOtherMode(fragment`top_up.account_id`, paid.livemode)}
      returning account_id
    ), missing as (
      insert into top_up (id, state, account_id, amount_cents, challenge_id, session_id, payment_intent_id, credited_at)
      select ${paid.topUpId}::uuid, 'credited', ${paid.accountId}::uuid, ${paid.amountCents}::int, ${paid.challengeId},
             ${paid.sessionId}, ${paid.paymentIntentId ?? null}, now()
      where not exists (select from top_up where id = ${paid.topUpId})
        and not ${isOfOtherMode(paid.accountId, paid.livemode)}
      on conflict do nothing
      returning account_id
    ), credited as (
      select account_id from recorded union all select account_id from missing
    ), ${creditCard(fragment`credited`, money)}`.execute(trx);
  const [row] = rows;
  return row && { accountId: row.account_id, balanceMicroUsd: row.balance, isIndebted: row.is_indebted };
}

/** Which purchase a payment of the processor has credited, and to whom; undefined when none names it. */
export async function purchaseOfPayment(
  db: Database,
  paymentIntentId: string,
): Promise<{ topUpId: string; accountId: string } | undefined> {
  const row = await db
    .selectFrom('top_up')
    .select(['id', 'account_id'])
    .where('payment_intent_id', '=', paymentIntentId)
    .where('state', '=', 'credited')
    .executeTakeFirst();
  return row && { topUpId: row.id, accountId: row.account_id };
}

/** The states of the purchases of these sessions, by session; of those that are known. */
export async function purchaseStates(
  db: Database,
  sessionIds: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const rows = await db
    .selectFrom('top_up')
    .select(['session_id', 'state'])
    .where('session_id', 'in', sessionIds)
    .execute();
  return new Map(rows.map(({ session_id, state }) => [session_id ?? '', state]));
}
