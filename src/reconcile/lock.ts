import pg from 'pg';

const TIMEOUT_MS = 5_000;

/**
 * Runs the work while this process alone holds the lock of that name, among all processes on the database. The lock is
 * on a connection of its own, so that it ends with the process however that ends. Undefined when another one holds it.
 */
export async function withLock<T>(databaseUrl: string, name: string, work: () => Promise<T>): Promise<T | undefined> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    connectionTimeoutMillis: TIMEOUT_MS,
    query_timeout: TIMEOUT_MS,
    keepAlive: true,
    application_name: 'speechgate reconciler',
  });
  // When the connection breaks, the lock is lost; the work goes on, since doing it twice at once is harmless.
  client.on('error', () => {});
  try {
    await client.connect();
    const { rows } = await client.query('select pg_try_advisory_lock(hashtextextended($1, 0)) as locked', [
      `speechgate:reconciler:${name}`,
    ]);
    return rows[0].locked ? await work() : undefined;
  } finally {
    await client.end().catch(() => {});
  }
}
