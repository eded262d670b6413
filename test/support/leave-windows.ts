import { sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';

/** What pruning has to delete: windows that are over. Nonces are left by the filling. */
export const leaveWindows = (db: Database, count: number) =>
  sql`
  insert into rate_window (key, scope, checked_at, allowed, taken)
  select sha256(uuid_send(gen_random_uuid())), 'ip', at, true, array[at]
  from generate_series(1, ${count}::int) n, lateral (select now() - make_interval(hours => 1, secs => n) as at) moment`.execute(
    db,
  );
