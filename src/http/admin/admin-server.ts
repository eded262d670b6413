import Fastify, { type FastifyInstance } from 'fastify';
import type { Database } from '../../db/database.ts';
import { readReadiness } from '../../db/readiness.ts';
import { isOwnHost } from '../../lib/own-host.ts';
import { errorBody } from '../structured-error.ts';

const DATABASE_TIMEOUT_MS = 20_000;

/** The operators' listener, separate from the public one. */
export function createAdminServer({
  db,
  metrics,
  names,
  leaving,
  processes,
  chain = () => undefined,
}: {
  readonly db: Database;
  readonly metrics: { readonly contentType: string; scrape(): Promise<string> };
  /** Accepted host names in lower case, besides addresses and localhost. */
  readonly names: readonly string[];
  readonly leaving: AbortSignal;
  readonly processes?: () => { readonly listening: number; readonly wanted: number };
  /** Shown beside the others. It does not decide, because other flows need no chain. */
  readonly chain?: () => string | undefined;
}): FastifyInstance {
  const admin = Fastify({ logger: false, forceCloseConnections: true });

  admin.addHook('onRequest', async (request, reply) => {
    if (isOwnHost(request.headers.host, names)) return;
    const message =
      'The host header must be an IP address, localhost or a name in ADMIN_HOST. Use the IP address, or add the name to ADMIN_HOST.';
    return reply.code(421).send(errorBody('INVALID_REQUEST', message, { field: 'host', rule: 'ADMIN_HOST' }));
  });

  admin.get('/livez', async () => ({ status: 'ok' }));

  admin.get('/readyz', async (_request, reply) => {
    const { database, schema } = await readiness(db);
    const others = processes?.();
    const ready = database === 'ok' && schema === 'ok' && others?.listening !== 0 && !leaving.aborted;
    const node = chain();
    const status = {
      ...(node !== undefined && { chain: node }),
      ...(others && { processes: `${others.listening} of ${others.wanted} listen` }),
      ...(leaving.aborted && { stopping: 'finishing running requests' }),
    };
    return reply
      .code(ready ? 200 : 503)
      .send({ status: ready ? 'ok' : 'not ready', checks: { database, schema, ...status } });
  });

  admin.get('/metrics', async (_request, reply) => reply.type(metrics.contentType).send(await metrics.scrape()));

  return admin;
}

async function readiness(db: Database): Promise<Record<'database' | 'schema', string>> {
  const found = await readReadiness(db, DATABASE_TIMEOUT_MS);
  switch (found.outcome) {
    case 'ready':
      return { database: 'ok', schema: 'ok' };
    case 'unmigrated':
      return { database: 'ok', schema: `lacks the migrations ${found.pending.join(', ')}. Run npm run migrate` };
    case 'denied':
      return { database: 'ok', schema: `${found.cause}. ${found.fix}` };
    case 'refused':
      return { database: `DATABASE_URL can't be used (${found.cause}). ${found.fix}`, schema: 'unknown' };
    case 'unavailable':
      return { database: `unavailable: ${found.cause}`, schema: 'unknown' };
  }
}
