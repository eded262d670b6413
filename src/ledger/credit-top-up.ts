import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { contra } from './contra.ts';
import { isOfMode } from './instance.ts';

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

const MICRO_USD_PER_CENT = 10_000n;

/**
 * Credits a paid checkout session, once: whoever comes second, or at the same moment, finds it credited. The whole
 * credit is one statement. The top_up row is written when it is missing, as after a restore of the database. It is not
 * an upsert by id: beside a concurrent update one may miss the row, insert, and fail on the session's unique index.
 * @throws OtherModeError with nothing credited, when the account is of the other mode
 */
export async function creditTopUp(db: Database, paid: PaidTopUp): Promise<TopUpCredit> {
  const amount = BigInt(paid.amountCents) * MICRO_USD_PER_CENT;
  const { rows } = await sql<{ account_id: string; balance: bigint }>`
    with recorded as (
      update top_up set state = 'credited', credited_at = now(), session_id = ${paid.sessionId},
                        amount_cents = ${paid.amountCents}
      where id = ${paid.topUpId} and state <> 'credited' and not ${isOfOtherMode(sql.ref('top_up.account_id'), paid.livemode)}
      returning account_id
    ), missing as (
      insert into top_up (id, state, account_id, amount_cents, challenge_id, session_id, credited_at)
      select ${paid.topUpId}::uuid, 'credited', ${paid.accountId}::uuid, ${paid.amountCents}::int, ${paid.challengeId},
             ${paid.sessionId}, now()
      where not exists (select from top_up where id = ${paid.topUpId})
        and not ${isOfOtherMode(sql.val(paid.accountId), paid.livemode)}
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
    insert into account (id, kind, livemode, balance_micro_usd)
    select credit_account_id, 'card', ${paid.livemode}::boolean, ${amount} from entry
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
    .where('top_up.state', '=', 'credited')
    .executeTakeFirst();
  if (existing) {
    return { accountId: existing.id, balanceMicroUsd: existing.balance_micro_usd ?? 0n, alreadyCredited: true };
  }
  const { rows: refused } = await sql`
    select from (select coalesce((select account_id from top_up where id = ${paid.topUpId}), ${paid.accountId}::uuid) as id) paid
    where ${isOfOtherMode(sql.ref('paid.id'), paid.livemode)}`.execute(db);
  if (refused.length > 0) throw new OtherModeError('a session of the one mode does not credit an account of the other');
  // The statement still saw the row of a purchase that came to nothing, and that was deleted before it was locked.
  return creditTopUp(db, paid);
}

const isOfOtherMode = (accountId: RawBuilder<unknown>, livemode: boolean) => sql<boolean>`
  exists (select from account where account.id = ${accountId}::uuid and not ${isOfMode(livemode)})`;
