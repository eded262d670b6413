import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

const BATCH = 1000;

/** Deletes feedback of so many days ago, at most so much, never what is still to be mailed. Tells how much it was. */
export async function pruneFeedback(db: Database, retentionDays: number): Promise<number> {
  const { numAffectedRows } = await sql`
    delete from feedback where id = any(array(
      select id from feedback
      where received_at < now() - make_interval(days => ${retentionDays}::int)
        and (notification <> 'queued' or mailed_at is not null)
      order by received_at limit ${BATCH} for update skip locked
    ))`.execute(db);
  return Number(numAffectedRows ?? 0n);
}
