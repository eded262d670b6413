import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { contra } from './contra.ts';

/** One purchase of credit, as the processor's paid session tells it (R16). */
export interface PaidTopUp {
  /** Id of our top_up row, from the session's metadata. */
  readonly topUpId: string;
  readonly sessionId: string;
  /** The account to credit, from the session's metadata; it is created when it does not exist. */
  readonly accountId: string;
  readonly amountCents: number;
  readonly challengeId: string | null;
}

export interface TopUpCredit {
  readonly accountId: string;
  readonly balanceMicroUsd: bigint;
  readonly alreadyCredited: boolean;
}

const MICRO_USD_PER_CENT = 10_000n;

/**
 * Credits a paid checkout session, once: whoever comes second, or at the same moment, finds it credited. The whole
 * credit is one statement. The top_up row is written when it is missing, as after a restore of the database. It is not
 * an upsert by id: beside a concurrent update one may miss the row, insert, and fail on the session's unique index.
 */
export async function creditTopUp(db: Database, paid: PaidTopUp): Promise<TopUpCredit> {
  const amount = BigInt(paid.amountCents) * MICRO_USD_PER_CENT;
  const { rows } = await sql<{ account_id: string; balance: bigint }>`
    with recorded as (
      update top_up set state = 'credited', credited_at = now(), session_id = ${paid.sessionId},
                        amount_cents = ${paid.amountCents}
      where id = ${paid.topUpId} and state <> 'credited'
      returning account_id
    ), missing as (
      insert into top_up (id, state, account_id, amount_cents, challenge_id, session_id, credited_at)
      select ${paid.topUpId}::uuid, 'credited', ${paid.accountId}::uuid, ${paid.amountCents}::int, ${paid.challengeId},
             ${paid.sessionId}, now()
      where not exists (select from top_up where id = ${paid.topUpId})
      on conflict do nothing
      returning account_id
    ), credited as (
      select account_id from recorded union all select account_id from missing
    ), entry as (
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
      select 'top_up', 'posted', ${contra.cardClearing}, account_id, ${amount}, ${paid.sessionId}, now()
      from credited
      returning credit_account_id
    )
    insert into account (id, kind, balance_micro_usd) select credit_account_id, 'card', ${amount} from entry
    on conflict (id) do update set balance_micro_usd = account.balance_micro_usd + excluded.balance_micro_usd
    returning id as account_id, balance_micro_usd as balance`.execute(db);
  const credited = rows[0];
  if (credited) {
    return { accountId: credited.account_id, balanceMicroUsd: credited.balance, alreadyCredited: false };
  }
  const existing = await db
    .selectFrom('top_up')
    .innerJoin('account', 'account.id', 'top_up.account_id')
    .select(['account.id', 'account.balance_micro_usd'])
    .where('top_up.id', '=', paid.topUpId)
    .executeTakeFirst();
  // The statement still saw the row of a purchase that came to nothing, and that was deleted before it was locked.
  if (!existing) return creditTopUp(db, paid);
  return { accountId: existing.id, balanceMicroUsd: existing.balance_micro_usd ?? 0n, alreadyCredited: true };
}
