import pg from 'pg';

const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 10_000;

/**
 * Connections for graphile_worker, apart from ours: it reads int8 as text, and listens on one of them. A broken
 * connection is replaced on the next use.
 */
export function openQueuePool(url: string, options: { maxConnections: number; statementTimeoutMs?: number }): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max: options.maxConnections,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: options.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS,
    keepAlive: true,
    application_name: 'speechgate queue',
  });
  // Without listeners, a connection that breaks would end the process.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}
