import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { DB } from '../../db/tables.ts';

export type Database = Kysely<DB>;

/** How long a caller waits for a connection, and for one statement, before the database counts as unavailable. */
const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 10_000;

/** int8 and int8[] become bigint: an amount never passes through a floating-point number. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    Number(oid) === pg.types.builtins.INT8 && format !== 'binary' ? BigInt : pg.types.getTypeParser(oid, format),
};

/** A client whose statements are all prepared once per connection and then called by name. */
class PreparingClient extends pg.Client {
  static readonly #names = new Map<string, string>();

  constructor(config?: string | pg.ClientConfig) {
    super(config);
    // A connection that breaks fails its statement and leaves the pool; without a listener it would end the process.
    this.on('error', () => {});
  }

  // @ts-expect-error pg overloads query; Kysely calls it with text and values, pg's own internals with a config object.
  override query(text: string | pg.QueryConfig, values?: unknown[], ...rest: unknown[]) {
    if (typeof text !== 'string' || !values?.length) {
      return super.query(text as string, values as never, ...(rest as []));
    }
    let name = PreparingClient.#names.get(text);
    if (name === undefined) {
      name = `q${PreparingClient.#names.size}`;
      PreparingClient.#names.set(text, name);
    }
    return this.#call(name, text, values);
  }

  /** Like the client's own call with a config object, which copies that property by property. */
  #call(name: string, text: string, values: unknown[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const query = new pg.Query(text, values);
      Object.assign(query, {
        name,
        callback(error: Error | null, result: unknown) {
          if (error) reject(error);
          else resolve(result);
        },
      });
      super.query(query);
    }).catch((error: Error) => {
      // Else it would tell of the socket that it came from.
      Error.captureStackTrace(error);
      throw error;
    });
  }
}

export interface PoolOptions {
  readonly maxConnections?: number;
  /** 0 lets statements run as long as they need. */
  readonly statementTimeoutMs?: number;
}

/**
 * Opens a pool on the PostgreSQL database that the URL names. Connections are made when they are needed, so this
 * succeeds while the database is down; statements then fail within seconds (see isUnavailable).
 */
export function openPool(url: string, options: PoolOptions = {}): pg.Pool {
  const statementTimeout = options.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS;
  const pool = new pg.Pool({
    connectionString: url,
    max: options.maxConnections ?? 20,
    Client: PreparingClient as never,
    types,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: statementTimeout,
    query_timeout: statementTimeout && statementTimeout + 2_000,
    idle_in_transaction_session_timeout: statementTimeout,
    keepAlive: true,
    // A plan for any values: planning a hold anew each time costs more than placing it.
    options: '-c plan_cache_mode=force_generic_plan',
    application_name: 'speechgate',
  });
  // An idle connection that breaks is replaced on the next use; without a listener it would end the process.
  pool.on('error', () => {});
  return pool;
}

/** The database behind a pool. Destroying it ends the pool. */
export const databaseOn = (pool: pg.Pool): Database => new Kysely<DB>({ dialect: new PostgresDialect({ pool }) });

/** Opens the PostgreSQL database that the URL names, with a pool of its own. */
export const openDatabase = (url: string, options: PoolOptions = {}): Database => databaseOn(openPool(url, options));
