import pg from 'pg';

/** A database whose `clock_timestamp()` stands still until a test moves it. */
export interface DatabaseClock {
  /** @param interval in PostgreSQL's syntax, such as `59.999999 seconds` or `-1 hour` */
  advance(interval: string): Promise<void>;
  close(): Promise<void>;
}

/**
 * Puts a test in charge of the database's clock. Connections that are opened from now on find this function before
 * PostgreSQL's own, since the search path names its schema first; `now()` is not touched.
 */
export const controlDatabaseClock = (url: string): Promise<DatabaseClock> =>
  replaceClock(url, `'2030-01-01T00:00:00Z'`, 'select at from test_clock.reading');

/** Likewise; the clock goes on as ever, and a test can set it forward. */
export const shiftDatabaseClock = (url: string): Promise<DatabaseClock> =>
  replaceClock(url, `'epoch'`, `select pg_catalog.clock_timestamp() + (at - 'epoch') from test_clock.reading`);

async function replaceClock(url: string, start: string, reading: string): Promise<DatabaseClock> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query(`
    create schema test_clock;
    create table test_clock.reading (at timestamptz not null);
    insert into test_clock.reading values (${start});
    create function test_clock.clock_timestamp() returns timestamptz language sql volatile
      as $$${reading}$$;
    do $$ begin
      execute format('alter database %I set search_path = test_clock, pg_catalog, public', current_database());
    end $$`);
  return {
    advance: async (interval) => {
      await client.query('update test_clock.reading set at = at + $1::interval', [interval]);
    },
    close: () => client.end(),
  };
}
