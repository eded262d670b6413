import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { DB } from '../../db/tables.ts';
import { BoundedClient, PreparingClient } from './bounded-client.ts';

export type Database = Kysely<DB>;

const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 10_000;
/** How much later than the server's statement timeout the client gives up, if the server reports nothing. */
const ANSWER_RESERVE_MS = 2_000;

/** int8 becomes bigint, so that an amount never passes through a floating-point number. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    Number(oid) === pg.types.builtins.INT8 && format !== 'binary' ? BigInt : pg.types.getTypeParser(oid, format),
};

interface PoolOptions {
  readonly maxConnections?: number;
  readonly statementTimeoutMs?: number;
  /** False behind a transaction-pooling proxy, which does not know prepared statements. */
  readonly namedStatements?: boolean;
  /** For the statements of requests, which find few rows by a key; not for those that read whole tables. */
  readonly byKey?: boolean;
}

/**
 * A plan is kept, and until a table is analyzed for the first time, minutes after it was filled, PostgreSQL takes it for
 * small: each request would read all of it.
 */
const BY_KEY = { enable_seqscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off', jit: 'off' };
/** Generic plans: planning a hold costs more than executing it. */
const GENERIC = { plan_cache_mode: 'force_generic_plan' };
/** pg does not send a timeout of 0, so that one of the role would hold. */
const UNLIMITED = { statement_timeout: '0', idle_in_transaction_session_timeout: '0' };

/** What a connection for requests asks for at its start, and a pooler may ignore. */
export const START_SETTINGS: Readonly<Record<string, string>> = {
  statement_timeout: `${STATEMENT_TIMEOUT_MS / 1000}s`,
  idle_in_transaction_session_timeout: `${STATEMENT_TIMEOUT_MS / 1000}s`,
  ...GENERIC,
  ...BY_KEY,
};

/** What statements and driver rely on, whatever the role, the database or the URL say. */
export const SESSION_SETTINGS = {
  search_path: 'public',
  datestyle: 'ISO',
  intervalstyle: 'postgres',
  array_nulls: 'on',
  standard_conforming_strings: 'on',
  transform_null_equals: 'off',
  default_transaction_isolation: 'read committed',
};

/**
 * Commits may wait for more than the disk of the primary, and never for less. A search path in which every table of the
 * service is found stays.
 */
const SET_SESSION = `
  select set_config(name, value, false) from json_each_text('${JSON.stringify(SESSION_SETTINGS)}') as own (name, value)
  where name <> 'search_path' or to_regclass('public.schema_migration') is null or exists (
    select from pg_class where relnamespace = to_regnamespace('public') and relkind in ('r', 'p', 'v')
      and not pg_table_is_visible(oid))
  union all
  select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'`;

/** pg would let these parameters of the URL win over the pool's own. */
const POOL_PARAMETERS = ['statement_timeout', 'query_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout'];

/** Names in a URL what the pool sets itself. */
export const poolParametersOf = (url: string): string[] => {
  const given = new URLSearchParams(url.split('?')[1]);
  return [...POOL_PARAMETERS, 'options', 'binary'].filter((name) => given.has(name));
};

/** @param own options of the server, behind those of the URL, so that they win */
function withoutPoolParameters(url: string, own: string) {
  const [address = '', query] = url.split('?');
  const given = new URLSearchParams(query);
  const options = `${given.get('options') ?? ''} ${own}`.trim();
  const names = poolParametersOf(url);
  for (const name of names) given.delete(name);
  return { connectionString: names.length > 0 ? `${address}?${given}` : url, options };
}

const boundsOf = (url: string, statementTimeoutMs = STATEMENT_TIMEOUT_MS, options = '') => ({
  ...withoutPoolParameters(url, options),
  onConnect: (client: pg.ClientBase) => client.query(SET_SESSION),
  connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  statement_timeout: statementTimeoutMs,
  query_timeout: statementTimeoutMs && statementTimeoutMs + ANSWER_RESERVE_MS,
  keepAlive: true,
});

/** Connects lazily: it succeeds while the database is down, and statements then fail within seconds (isUnavailable). */
export function openPool(url: string, options: PoolOptions = {}): pg.Pool {
  const isUnlimited = options.statementTimeoutMs === 0;
  const settings = Object.entries({ ...GENERIC, ...(options.byKey && BY_KEY), ...(isUnlimited && UNLIMITED) });
  const own = settings.map(([name, value]) => `-c ${name}=${value}`).join(' ');
  const bounds = boundsOf(url, options.statementTimeoutMs, own);
  const pool = new pg.Pool({
    ...bounds,
    max: options.maxConnections ?? 20,
    Client: (options.namedStatements === false ? BoundedClient : PreparingClient) as never,
    types,
    idle_in_transaction_session_timeout: bounds.statement_timeout,
    application_name: 'speechgate',
  });
  // Without a listener, an idle connection that breaks ends the process. The pool replaces it on the next use.
  pool.on('error', () => {});
  return pool;
}

export const databaseOn = (pool: pg.Pool): Database => new Kysely<DB>({ dialect: new PostgresDialect({ pool }) });

export const openDatabase = (url: string, options: PoolOptions = {}): Database => databaseOn(openPool(url, options));

type Connected = Parameters<pg.Pool['connect']>[0];

/** graphile_worker 0.17 releases its listener twice if that fails during a stop. pg would throw, and end the process. */
class QueuePool extends pg.Pool {
  override connect(): Promise<pg.PoolClient>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<pg.PoolClient> | undefined {
    if (!callback) return super.connect();
    super.connect((error, client, release) => {
      let isReleased = false;
      callback(error, client, (broken) => {
        if (!isReleased) release(broken);
        isReleased = true;
      });
    });
    return undefined;
  }
}

/** A separate pool for graphile_worker, which reads int8 as text and keeps one connection for LISTEN. */
export function openQueuePool(
  url: string,
  options: { maxConnections: number; statementTimeoutMs?: number; lockTimeoutMs?: number },
): pg.Pool {
  const pool = new QueuePool({
    ...boundsOf(url, options.statementTimeoutMs),
    max: options.maxConnections,
    Client: BoundedClient as never,
    ...(options.lockTimeoutMs !== undefined && { lock_timeout: options.lockTimeoutMs }),
    application_name: 'speechgate queue',
  });
  pool.on('error', () => {});
  // Without this listener, a connection that breaks in use ends the process.
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}
