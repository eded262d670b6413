import pg from 'pg';
import { BoundedClient } from './bounded-client.ts';
import { ANSWER_RESERVE_MS } from './database.ts';

const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 10_000;

/**
 * Connections for graphile_worker, apart from ours: it reads int8 as text, and listens on one of them. A broken
 * connection is replaced on the next use.
 */
export function openQueuePool(
  url: string,
  options: { maxConnections: number; statementTimeoutMs?: number; lockTimeoutMs?: number },
): pg.Pool {
  const statementTimeout = options.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS;
  const pool = new pg.Pool({
    connectionString: url,
    max: options.maxConnections,
    Client: BoundedClient as never,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: statementTimeout,
    query_timeout: statementTimeout && statementTimeout + ANSWER_RESERVE_MS,
    ...(options.lockTimeoutMs !== undefined && { lock_timeout: options.lockTimeoutMs }),
    keepAlive: true,
    application_name: 'speechgate queue',
  });
  // Without listeners, a connection that breaks would end the process; graphile_worker wants to see them here.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}
