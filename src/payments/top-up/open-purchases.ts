import { type NotNull, sql } from 'kysely';
import type { Database } from '../../db/database.ts';
import {
  anyFrom,
  daysAgo,
  now,
  secondsAfter,
  secondsAgo,
  secondsFromNow,
  secondsSince,
  timestamp,
  unixSeconds,
} from '../../db/expressions.ts';

const YOUNG_SECONDS = 3600;
export const SESSION_SECONDS = 86_400;
export const MARGIN_SECONDS = 60;
export const GIVE_UP_SECONDS = 14 * 86_400;
const LONGEST_PAUSE_SECONDS = 86_400;
/** How long "this session failed" from the processor may be acted on: the process may have been frozen meanwhile. */
const VERDICT_SECONDS = 60;
const BATCH = 1000;

export interface OpenPurchase {
  readonly id: string;
  readonly session_id: string;
  readonly age_seconds: number;
  readonly claimed_at: string;
}

/** The start of a turn by the database's clock, and where the list of young purchases starts, in Unix seconds. */
export async function readTurnBegin(db: Database): Promise<{ begin: string; young_since: number }> {
  const young = unixSeconds(secondsAgo(YOUNG_SECONDS + MARGIN_SECONDS));
  return db
    .selectNoFrom(({ cast, fn }) => [
      cast<string>(now, 'text').as('begin'),
      fn<number>('floor', [young]).as('young_since'),
    ])
    .executeTakeFirstOrThrow();
}

/** Claims the purchase due longest, and reschedules it first, so that one that always fails blocks no others. */
export async function claimDuePurchase(db: Database, begin: string): Promise<OpenPurchase | undefined> {
  return db
    .with(
      (cte) => cte('due').materialized(),
      (qb) =>
        qb
          .selectFrom('top_up')
          .select((eb) => ['id', secondsSince(eb.ref('created_at')).as('age')])
          .where('state', '=', sql.lit('open'))
          .where('next_check_at', '<', timestamp(begin))
          .orderBy('next_check_at')
          .limit(sql.lit(1))
          .forUpdate()
          .skipLocked(),
    )
    .updateTable('top_up')
    .from('due')
    .set((eb) => {
      const pause = eb('age', '/', 4);
      const sessionEnd = secondsAfter(eb.ref('created_at'), SESSION_SECONDS + MARGIN_SECONDS);
      const open = eb.fn<Date>('least', [secondsFromNow(pause), sessionEnd]);
      const over = secondsFromNow(eb.fn('least', [pause, eb.val(LONGEST_PAUSE_SECONDS)]));
      const young = eb.case().when('age', '<', YOUNG_SECONDS).then(now);
      return { next_check_at: young.when('age', '<', SESSION_SECONDS).then(open).else(over).end() };
    })
    .whereRef('top_up.id', '=', 'due.id')
    .returning(['top_up.id', 'session_id', 'age as age_seconds'])
    .returning((eb) => eb.cast<string>(now, 'text').as('claimed_at'))
    .$narrowType<{ session_id: NotNull }>()
    .executeTakeFirst();
}

export async function expirePurchase(db: Database, id: string, claimedAt: string): Promise<void> {
  const purchase = db.updateTable('top_up').set({ state: 'expired' }).where('id', '=', id).where('state', '=', 'open');
  await purchase.where(now, '<', secondsAfter(timestamp(claimedAt), VERDICT_SECONDS)).execute();
}

export interface SessionPurchase {
  readonly topUpId: string;
  readonly sessionId: string;
  readonly accountId: string;
  readonly amountCents: number;
  readonly challengeId: string | null;
  readonly created: number;
}

/** Opens the purchase of a session whose id was lost, with or without a row. A purchase with a session is unchanged. */
export async function recordSession(
  db: Database,
  { topUpId, sessionId, accountId, amountCents, challengeId, created }: SessionPurchase,
): Promise<void> {
  const session = { state: 'open', session_id: sessionId };
  const known = await db
    .updateTable('top_up')
    .set({ ...session, next_check_at: now })
    .where('id', '=', topUpId)
    .where('state', 'in', ['opening', 'expired'])
    .where('session_id', 'is', null)
    .executeTakeFirst();
  if (known.numUpdatedRows > 0n) return;
  await db
    .insertInto('top_up')
    .values({
      ...session,
      id: topUpId,
      account_id: accountId,
      amount_cents: amountCents,
      challenge_id: challengeId,
      created_at: ({ fn, val }) => fn('to_timestamp', [val(created)]),
    })
    .onConflict((oc) => oc.doNothing())
    .execute();
}

/** Expires purchases whose session can't be paid any more, because the process died or the processor refused. */
export async function endNeverOpened(db: Database): Promise<void> {
  const opening = db.selectFrom('top_up').select('id').where('state', '=', sql.lit('opening'));
  const old = opening.where('created_at', '<', secondsAgo(SESSION_SECONDS + 2 * YOUNG_SECONDS)).limit(BATCH);
  const purchases = db.updateTable('top_up').set({ state: 'expired' }).where('state', '=', 'opening');
  await purchases.where('id', '=', anyFrom(old.forUpdate().skipLocked())).execute();
}

/** Checkouts that nobody completes are checked for at most 14 days; the extra week is for checks by other means. */
const KEEP_DAYS = 21;

/** Safe to delete: crediting reads the processor's record, and a session that is paid after all writes a new row. */
export async function pruneUnpaid(db: Database): Promise<number> {
  const expired = db.selectFrom('top_up').select('id').where('state', '=', sql.lit('expired'));
  const old = expired.where('created_at', '<', daysAgo(KEEP_DAYS)).orderBy('created_at').limit(BATCH);
  const purchases = db.deleteFrom('top_up').where('state', '=', 'expired');
  const unpaid = purchases.where('id', '=', anyFrom(old.forUpdate().skipLocked()));
  return Number((await unpaid.executeTakeFirstOrThrow()).numDeletedRows);
}
