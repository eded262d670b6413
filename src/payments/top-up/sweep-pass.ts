import { sql } from 'kysely';
import type { Database } from '../../db/database.ts';
import { now, secondsAgo, secondsBefore, timestamp, unixSeconds } from '../../db/expressions.ts';

const OVERLAP_SECONDS = {
  // A session may be paid up to 24 hours after it was created.
  sessions: 25 * 3600,
  // These are listed at once, and their later changes are checked one by one.
  refunds: 3600,
  disputes: 3600,
} as const;

export type ProcessorList = keyof typeof OVERLAP_SECONDS;

/** Progress through a list. A write must match what was read, so that a process that was frozen changes nothing. */
export interface Pass {
  readonly name: ProcessorList;
  readonly created_from: number;
  readonly begun_at: string;
  readonly pass_cursor: string | null;
}

const ENDED = { pass_started_at: null, pass_cursor: null };

const updateAt = (db: Database, { name, begun_at, pass_cursor }: Pass) =>
  db
    .updateTable('processor_list')
    .where('name', '=', name)
    .where('pass_started_at', '=', timestamp(begun_at))
    .where('pass_cursor', 'is not distinct from', pass_cursor);

/** Begins or resumes a pass. Its times are never in the future, even if the database's clock has stepped back. */
export async function beginPass(db: Database, list: ProcessorList): Promise<Pass> {
  const pass = await db
    .updateTable('processor_list')
    .set(({ fn }) => ({
      pass_started_at: fn<Date>('least', ['pass_started_at', now]),
      read_until: fn<Date>('least', ['read_until', secondsAgo(OVERLAP_SECONDS[list])]),
    }))
    .where('name', '=', list)
    .returning((eb) => [
      eb.fn<number>('floor', [unixSeconds(eb.ref('read_until'))]).as('created_from'),
      eb.cast<string>('pass_started_at', 'text').as('begun_at'),
      'pass_cursor',
    ])
    .executeTakeFirstOrThrow();
  return { name: list, ...pass };
}

export async function advancePass(db: Database, pass: Pass, cursor: string | undefined): Promise<Pass | undefined> {
  const pass_cursor = cursor ?? null;
  const { numUpdatedRows } = await updateAt(db, pass).set({ pass_cursor }).executeTakeFirstOrThrow();
  return numUpdatedRows === 1n ? { ...pass, pass_cursor } : undefined;
}

export async function abandonPass(db: Database, pass: Pass): Promise<void> {
  await updateAt(db, pass).set(ENDED).execute();
}

export async function endPass(db: Database, pass: Pass): Promise<void> {
  const overlap = OVERLAP_SECONDS[pass.name];
  await updateAt(db, pass)
    .set(ENDED)
    .set('read_until', ({ fn, ref }) => fn('greatest', ['read_until', secondsBefore(ref('pass_started_at'), overlap)]))
    .execute();
}

/** After a restore: reads all lists again since then, and makes every open purchase and every clawback due now. */
export async function readAgainSince(db: Database, since: Date): Promise<void> {
  for (const [name, seconds] of Object.entries(OVERLAP_SECONDS)) {
    const from = new Date(since.getTime() - seconds * 1000);
    const list = db.updateTable('processor_list').set(ENDED).where('name', '=', name);
    await list.set('read_until', ({ fn, val }) => fn('least', ['read_until', val(from)])).execute();
  }
  const purchases = db.updateTable('top_up').set({ next_check_at: now }).where('state', '=', sql.lit('open'));
  await purchases.where('next_check_at', '>', now).execute();
  await db.updateTable('clawback').set({ next_check_at: now }).where('next_check_at', '>', now).execute();
}

/** Makes the open purchase of a session, or the refund or dispute, the next that is checked. */
export async function checkNext(db: Database, id: string): Promise<void> {
  const purchases = db.updateTable('top_up').where('session_id', '=', id).where('state', '=', 'open');
  await purchases.set(({ ref }) => ({ next_check_at: ref('created_at') })).execute();
  const clawbacks = db.updateTable('clawback').where('id', '=', id).where('next_check_at', 'is not', null);
  await clawbacks.set(({ ref }) => ({ next_check_at: ref('created_at') })).execute();
}

export async function unread(db: Database, dueAt: string): Promise<number> {
  const due = timestamp(dueAt);
  const lists = db.selectFrom('processor_list').where('pass_started_at', 'is not', null);
  const purchases = db.selectFrom('top_up').where('state', '=', sql.lit('open')).where('next_check_at', '<', due);
  const clawbacks = db.selectFrom('clawback').where('next_check_at', '<', due);
  const { count } = await db
    .selectFrom(lists.unionAll(purchases).unionAll(clawbacks).as('left_to_read'))
    .select(({ fn }) => fn.countAll<bigint>().as('count'))
    .executeTakeFirstOrThrow();
  return Number(count);
}
