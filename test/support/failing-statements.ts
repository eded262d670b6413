import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';

export interface FailingStatements {
  /** How many have failed. */
  count(): Promise<number>;
  /** Lets them succeed from now on. */
  mend(): Promise<void>;
}

/**
 * Lets the database fail statements that insert or change such rows of a table, the first `times` of them.
 * @param when a condition on `new`
 * @param state SQLSTATE that they fail with
 */
export async function failStatements(
  db: Database,
  {
    table,
    on,
    when,
    state,
    times = 1_000_000,
  }: {
    table: 'transfer' | 'x402_payment';
    on: 'insert' | 'update';
    when: RawBuilder<unknown>;
    state: string;
    times?: number;
  },
): Promise<FailingStatements> {
  await sql`create sequence failure`.execute(db);
  await sql`
    create function fail() returns trigger language plpgsql as ${sql.lit(`begin
      if nextval('failure') <= ${times} then raise exception 'as it was told' using errcode = '${state}'; end if;
      return new;
    end`)}`.execute(db);
  await sql`
    create trigger zz_failing before ${sql.raw(on)} on ${sql.table(table)} for each row when (${when})
    execute function fail()`.execute(db);
  return {
    count: async () => {
      const { rows } = await sql<{ count: bigint }>`
        select case when is_called then least(last_value, ${times}) else 0 end as count from failure`.execute(db);
      return Number(rows[0]?.count);
    },
    mend: async () => {
      await sql`drop trigger zz_failing on ${sql.table(table)}`.execute(db);
    },
  };
}
