import { sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';

/** What a commit has changed, and whether it waits until that is on disk. */
export interface RecordedCommit {
  /** Tables, in alphabetical order. */
  readonly changed: readonly string[];
  /** By the setting `synchronous_commit` as it was when the transaction committed. */
  readonly waits: boolean;
}

const TABLES = ['account', 'transfer', 'prepaid_nonce', 'rate_window', 'x402_payment', 'job'];

/**
 * Has the database note its commits in these tables from now on: by triggers that run when a transaction commits, behind
 * all that its statements have set.
 */
export async function recordCommits(db: Database): Promise<{ take(): Promise<RecordedCommit[]> }> {
  await sql`
    create table noted_commit (at serial, id xid8, table_name text, waits boolean, primary key (id, table_name))`.execute(
    db,
  );
  await sql`
    create function note_commit() returns trigger language plpgsql as ${sql.lit(`begin
      insert into noted_commit (id, table_name, waits)
      values (pg_current_xact_id(), tg_table_name, current_setting('synchronous_commit') <> 'off') on conflict do nothing;
      return null;
    end`)}`.execute(db);
  for (const table of TABLES) {
    await sql`
      create constraint trigger zz_noting after insert or update or delete on ${sql.table(table)}
      deferrable initially deferred for each row execute function note_commit()`.execute(db);
  }
  return {
    take: async () => {
      const { rows } = await sql<RecordedCommit>`
        with noted as (delete from noted_commit returning *)
        select array_agg(table_name order by table_name) as changed, bool_and(waits) as waits
        from noted group by id order by min(at)`.execute(db);
      return rows;
    },
  };
}
