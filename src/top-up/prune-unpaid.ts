import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** A purchase is asked about for 14 days at most; a week more is for looking once again by other means. */
const KEEP_DAYS = 21;
const BATCH = 1000;

/**
 * Deletes purchases that came to nothing long ago, at most so many. Tells how many there were. Nothing is lost with the
 * row: all that crediting takes is the processor's own record, and a session that is paid after all writes a new one.
 */
export async function pruneUnpaid(db: Database): Promise<number> {
  const { numAffectedRows } = await sql`
    delete from top_up where id = any(array(
      select id from top_up
      where state = 'expired' and created_at < now() - make_interval(days => ${KEEP_DAYS}::int)
      order by created_at limit ${BATCH} for update skip locked
    )) and state = 'expired'`.execute(db);
  return Number(numAffectedRows ?? 0n);
}
