import Fastify, { type FastifyInstance } from 'fastify';
import type { Database } from '../db/database.ts';
import { pendingMigrations } from '../db/migrate.ts';
import { errorBody } from '../http/structured-error.ts';
import { isOwnHost } from '../lib/own-host.ts';

export interface AdminParts {
  readonly db: Database;
  readonly metrics: {
    readonly contentType: string;
    /** Prometheus' text format. */
    scrape(): Promise<string>;
  };
  /** Host names that it answers to, in lower case, besides addresses and localhost. */
  readonly names: readonly string[];
  /** Aborted when it is to stop: from then on it is not ready. */
  readonly leaving: AbortSignal;
  /** How many processes take requests, where that are others than this one. */
  readonly processes?: () => { readonly listening: number; readonly wanted: number };
}

/**
 * The operators' listener, apart from the public one and on loopback unless told otherwise: `/livez` tells that the
 * process runs, `/readyz` whether it can serve (database reachable, schema current, some process there, not stopping),
 * `/metrics` what Prometheus collects.
 */
export function createAdminServer({ db, metrics, names, leaving, processes }: AdminParts): FastifyInstance {
  const admin = Fastify({ logger: false, forceCloseConnections: true });

  admin.addHook('onRequest', async (request, reply) => {
    if (isOwnHost(request.headers.host, names)) return;
    const message = 'This listener does not go by that name. Ask for its address, or list the name in ADMIN_HOST.';
    return reply.code(421).send(errorBody('INVALID_REQUEST', message, { field: 'host', rule: 'ADMIN_HOST' }));
  });

  admin.get('/livez', async () => ({ status: 'ok' }));

  admin.get('/readyz', async (_request, reply) => {
    const { database, schema } = await readiness(db);
    const others = processes?.();
    const ready = database === 'ok' && schema === 'ok' && others?.listening !== 0 && !leaving.aborted;
    const told = {
      ...(others && { processes: `${others.listening} of ${others.wanted} listen` }),
      ...(leaving.aborted && { stopping: 'it finishes what runs' }),
    };
    return reply
      .code(ready ? 200 : 503)
      .send({ status: ready ? 'ok' : 'not ready', checks: { database, schema, ...told } });
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
