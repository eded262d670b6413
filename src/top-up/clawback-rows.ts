import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { isStatusKnown } from './clawback-status.ts';
import { type ClawbackKind, isUsable, type ListedClawback, type ProcessorClawback } from './processor-clawbacks.ts';

/** One that is final is looked at for so long after it began: a bank may still send a refund back. */
const FINAL_SECONDS = 60 * 86_400;
const SHORTEST_PAUSE_SECONDS = 60;
const LONGEST_PAUSE_SECONDS = 86_400;

export interface ClawbackRow {
  readonly id: string;
  readonly kind: ClawbackKind;
  readonly accountId: string;
  readonly amountCents: number;
  readonly state: 'none' | 'taken' | 'returned';
  /** How often it was taken. */
  readonly turns: number;
}

/** One that the processor is asked for now. */
export interface ClaimedClawback {
  readonly id: string;
  readonly kind: ClawbackKind;
  readonly accountId: string;
  /** Of this claim: a later one has a higher one, and makes this one's answer void. */
  readonly fence: number;
}

/** The older, the rarer; what has just begun every minute. */
const NEXT_CHECK = sql`now() + make_interval(secs => least(greatest(
  extract(epoch from now() - created_at)::double precision / 8, ${SHORTEST_PAUSE_SECONDS}), ${LONGEST_PAUSE_SECONDS}))`;
const ROW = sql`id, kind, account_id as "accountId", amount_cents as "amountCents", state, turns`;

/** Records one that nothing was known of; undefined when somebody else was first. */
export async function insertClawback(
  trx: Database,
  { id, kind, chargeId, amountCents, currency, status, created }: ProcessorClawback,
  { topUpId, accountId }: { readonly topUpId: string; readonly accountId: string },
): Promise<ClawbackRow | undefined> {
  const { rows } = await sql<ClawbackRow>`
    insert into clawback (id, kind, top_up_id, account_id, charge_id, amount_cents, currency, status, is_status_known,
                          created_at, next_check_at)
    values (${id}, ${kind}, ${topUpId}, ${accountId}, ${chargeId}, ${amountCents}, ${currency}, ${status},
            ${isStatusKnown({ kind, status })}, to_timestamp(${created}), now() + make_interval(secs => ${SHORTEST_PAUSE_SECONDS}))
    on conflict do nothing
    returning ${ROW}`.execute(trx);
  return rows[0];
}

/**
 * Tells which of them nothing is known of. Those that are known and have another status by now are due at once, and one
 * that was due keeps its place: else each pass would put it behind all that wait. One that is locked is being looked at.
 */
export async function unknownOf(db: Database, listed: readonly ListedClawback[]): Promise<readonly ListedClawback[]> {
  if (listed.length === 0) return [];
  const { rows } = await sql<{ id: string; status: string }>`
    select id, status from clawback where id = any(${listed.map(({ id }) => id)}::text[])`.execute(db);
  const known = new Map(rows.map(({ id, status }) => [id, status]));
  const changed = listed
    .filter(isUsable)
    .filter(({ id, status }) => known.has(id) && known.get(id) !== status)
    .map(({ id }) => id);
  if (changed.length > 0) {
    await sql`
      update clawback set next_check_at = least(next_check_at, now())
      where id = any(array(
        select id from clawback where id = any(${changed}::text[]) order by id for update skip locked
      ))`.execute(db);
  }
  return listed.filter(({ id }) => !known.has(id));
}

/** The one that has been due the longest. It goes to the end of the queue before the processor is asked. */
export async function claimDueClawback(db: Database, begin: string): Promise<ClaimedClawback | undefined> {
  const { rows } = await sql<ClaimedClawback>`
    update clawback set fence = fence + 1, next_check_at = ${NEXT_CHECK}
    where id = (
      select id from clawback where next_check_at < ${begin}::timestamptz
      order by next_check_at limit 1 for update skip locked)
    returning id, kind, account_id as "accountId", fence`.execute(db);
  return rows[0];
}

/** Records what the processor told after a claim; undefined when somebody has asked again since. */
export async function readAgain(
  trx: Database,
  { id, kind, fence }: Pick<ClaimedClawback, 'id' | 'kind' | 'fence'>,
  { status, isFinal }: { status: string; isFinal: boolean },
): Promise<ClawbackRow | undefined> {
  const { rows } = await sql<ClawbackRow>`
    update clawback
    set status = ${status}, is_status_known = ${isStatusKnown({ kind, status })},
        next_check_at = case when ${isFinal} and created_at < now() - make_interval(secs => ${FINAL_SECONDS})
                             then null else next_check_at end
    where id = ${id} and fence = ${fence}
    returning ${ROW}`.execute(trx);
  return rows[0];
}

/** Records that it is taken, or returned, in the transaction that moves the money. */
export async function mark(trx: Database, id: string, state: 'taken' | 'returned', turns: number): Promise<void> {
  await sql`update clawback set state = ${state}, turns = ${turns} where id = ${id}`.execute(trx);
}
