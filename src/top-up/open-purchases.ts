import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** A purchase younger than this is looked at in every turn. */
const YOUNG_SECONDS = 3600;
/** A session can be paid for 24 hours (Stripe's default); what it came to is certain a little later. */
export const SESSION_SECONDS = 86_400;
export const MARGIN_SECONDS = 60;
/** How long a session is asked for that has neither been paid nor expired, as with a payment that takes days to clear. */
export const GIVE_UP_SECONDS = 14 * 86_400;
/** For how long the processor's word that a session came to nothing is acted on: a process may be frozen meanwhile. */
const VERDICT_SECONDS = 60;

/** A purchase whose session may still be paid. */
export interface OpenPurchase {
  readonly id: string;
  readonly session_id: string;
  readonly age_seconds: number;
  /** When it was claimed, by the database's clock with its microseconds. */
  readonly claimed_at: string;
}

/** When a turn begins, by the database's clock; `young_since` is where the list of the young ones begins, in Unix seconds. */
export async function readTurnBegin(db: Database): Promise<{ begin: string; young_since: number }> {
  const { rows } = await sql<{ begin: string; young_since: number }>`
    select now()::text as begin,
           floor(extract(epoch from now()) - ${YOUNG_SECONDS + MARGIN_SECONDS})::double precision as young_since`.execute(
    db,
  );
  return rows[0] as { begin: string; young_since: number };
}

/**
 * The open purchase that has been due the longest. The time of its next check is set before the processor is called, so
 * that one that always fails goes to the end of the queue too.
 */
export async function claimDuePurchase(db: Database, begin: string): Promise<OpenPurchase | undefined> {
  const { rows } = await sql<OpenPurchase>`
    with due as materialized (
      select id, extract(epoch from now() - created_at)::double precision as age from top_up
      where state = 'open' and next_check_at < ${begin}::timestamptz
      order by next_check_at limit 1 for update skip locked
    )
    update top_up set next_check_at = case
      when age < ${YOUNG_SECONDS} then now()
      when age < ${SESSION_SECONDS} then
        least(now() + make_interval(secs => age / 4),
              created_at + make_interval(secs => ${SESSION_SECONDS + MARGIN_SECONDS}))
      else now() + make_interval(secs => least(age, ${GIVE_UP_SECONDS}) / 4)
    end
    from due where top_up.id = due.id
    returning top_up.id, session_id, age as age_seconds, now()::text as claimed_at`.execute(db);
  return rows[0];
}

/** Closes a purchase that came to nothing, as the processor has told after the claim. */
export async function expirePurchase(db: Database, id: string, claimedAt: string): Promise<void> {
  await sql`
    update top_up set state = 'expired'
    where id = ${id} and state = 'open'
      and now() < ${claimedAt}::timestamptz + make_interval(secs => ${VERDICT_SECONDS})`.execute(db);
}

/** What a session of this service tells of its purchase. */
export interface SessionPurchase {
  readonly topUpId: string;
  readonly sessionId: string;
  readonly accountId: string;
  readonly amountCents: number;
  readonly challengeId: string | null;
  /** Unix seconds. */
  readonly created: number;
}

/** Opens the purchase of a session whose id was lost, with its row or without. One that has its session stays as it is. */
export async function recordSession(
  db: Database,
  { topUpId, sessionId, accountId, amountCents, challengeId, created }: SessionPurchase,
): Promise<void> {
  await sql`
    with found as (
      update top_up set state = 'open', session_id = ${sessionId}, next_check_at = now()
      where id = ${topUpId} and state in ('opening', 'expired') and session_id is null
    )
    insert into top_up (id, state, account_id, amount_cents, challenge_id, session_id, created_at)
    select ${topUpId}::uuid, 'open', ${accountId}::uuid, ${amountCents}::int, ${challengeId}, ${sessionId},
           to_timestamp(${created})
    where not exists (select from top_up where id = ${topUpId})
    on conflict do nothing`.execute(db);
}

/** Ends the purchases whose session nobody can have paid any more: the process died, or the processor refused. */
export async function endNeverOpened(db: Database): Promise<void> {
  await sql`
    update top_up set state = 'expired'
    where id = any(array(
      select id from top_up
      where state = 'opening' and created_at < now() - make_interval(secs => ${SESSION_SECONDS + 2 * YOUNG_SECONDS})
      limit 1000 for update skip locked
    )) and state = 'opening'`.execute(db);
}
