import Fastify, { type FastifyInstance } from 'fastify';
import type { Database } from '../db/database.ts';
import { pendingMigrations } from '../db/migrate.ts';
import type { Metrics } from '../metrics.ts';

/**
 * The operators' listener on loopback, apart from the public one: `/livez` tells that the process runs, `/readyz`
 * whether it can serve (database reachable, schema current), `/metrics` what Prometheus collects.
 */
export function createAdminServer(db: Database, metrics: Metrics): FastifyInstance {
  const admin = Fastify({ logger: false, forceCloseConnections: true });

  admin.get('/livez', async () => ({ status: 'ok' }));

  admin.get('/readyz', async (_request, reply) => {
    const checks = await readiness(db);
    const ready = Object.values(checks).every((check) => check === 'ok');
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ok' : 'not ready', checks });
  });

  admin.get('/metrics', async (_request, reply) => reply.type(metrics.contentType).send(await metrics.scrape()));

  return admin;
}

async function readiness(db: Database): Promise<Record<'database' | 'schema', string>> {
  try {
    const pending = await pendingMigrations(db);
    return { database: 'ok', schema: pending.length === 0 ? 'ok' : `lacks ${pending.join(', ')}; run npm run migrate` };
  } catch {
    return { database: 'not reachable', schema: 'unknown' };
  }
}
