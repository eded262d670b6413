import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { balanceOf, creditCard, isOfOtherMode } from '../ledger/top-up-transfer.ts';
import { MICRO_USD_PER_CENT } from '../lib/money.ts';

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
}

export interface TopUpCredit {
  readonly accountId: string;
  readonly balanceMicroUsd: bigint;
  readonly alreadyCredited: boolean;
}

/** The processor's test mode and its live mode share no account. */
export class OtherModeError extends Error {}

/**
 * Credits a paid checkout session, once: whoever comes second, or at the same moment, finds it credited. The whole
 * credit is one statement. The top_up row is written when it is missing, as after a restore of the database. It is not
 * an upsert by id: beside a concurrent update one may miss the row, insert, and fail on the session's unique index.
 * @throws OtherModeError with nothing credited, when the account is of the other mode
 */
export async function creditTopUp(db: Database, paid: PaidTopUp): Promise<TopUpCredit> {
  const money = { ...paid, amountMicroUsd: BigInt(paid.amountCents) * MICRO_USD_PER_CENT };
  const { rows } = await statement<{ account_id: string; balance: bigint }>`
    with recorded as (
      update top_up set state = 'credited', credited_at = now(), session_id = ${paid.sessionId},
                        amount_cents = ${paid.amountCents}
      where id = ${paid.topUpId} and state <> 'credited' and not ${isOfOtherMode(fragment`top_up.account_id`, paid.livemode)}
      returning account_id
    ), missing as (
      insert into top_up (id, state, account_id, amount_cents, challenge_id, session_id, credited_at)
      select ${paid.topUpId}::uuid, 'credited', ${paid.accountId}::uuid, ${paid.amountCents}::int, ${paid.challengeId},
             ${paid.sessionId}, now()
      where not exists (select from top_up where id = ${paid.topUpId})
        and not ${isOfOtherMode(paid.accountId, paid.livemode)}
      on conflict do nothing
      returning account_id
    ), credited as (
      select account_id from recorded union all select account_id from missing
    ), ${creditCard(fragment`credited`, money)}`.execute(db);
  const credited = rows[0];
  if (credited) {
    return { accountId: credited.account_id, balanceMicroUsd: credited.balance, alreadyCredited: false };
  }
  const existing = await statement<{ account_id: string; balance: bigint }>`
    select account_id, ${balanceOf(fragment`account_id`)} as balance from top_up
    where id = ${paid.topUpId} and state = 'credited'`.execute(db);
  if (existing.rows[0]) {
    const { account_id: accountId, balance: balanceMicroUsd } = existing.rows[0];
    return { accountId, balanceMicroUsd, alreadyCredited: true };
  }
  const { rows: refused } = await statement`
    select from (select coalesce((select account_id from top_up where id = ${paid.topUpId}), ${paid.accountId}::uuid) as id) paid
    where ${isOfOtherMode(fragment`paid.id`, paid.livemode)}`.execute(db);
  if (refused.length > 0) throw new OtherModeError('a session of the one mode does not credit an account of the other');
  // The statement still saw the row of a purchase that came to nothing, and that was deleted before it was locked.
  return creditTopUp(db, paid);
}

/** Those of the sessions that are credited. */
export async function creditedSessions(db: Database, sessionIds: readonly string[]): Promise<ReadonlySet<string>> {
  const rows = await db
    .selectFrom('top_up')
    .select('session_id')
    .where('state', '=', 'credited')
    .where('session_id', 'in', sessionIds)
    .execute();
  return new Set(rows.flatMap(({ session_id }) => session_id ?? []));
}
