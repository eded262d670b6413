import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Route } from '../contract/routes.ts';
import { PREFLIGHT_HEADERS } from './headers.ts';
import { errorBody } from './structured-error.ts';

/**
 * Answers what no operation serves: OPTIONS on any path, another method on a known path (405 with `allow`, R9), and
 * everything else (404).
 */
export function createNotFoundHandler(routes: readonly Route[]) {
  const paths = new Map<string, { pattern: RegExp; methods: string[] }>();
  for (const route of routes) {
    const entry = paths.get(route.path) ?? { pattern: toPattern(route.path), methods: [] };
    entry.methods.push(route.method, ...(route.method === 'GET' && !route.noHead ? ['HEAD'] : []));
    paths.set(route.path, entry);
  }
  const allowed = (url: string) => {
    const path = url.split('?', 1)[0] ?? '';
    const methods = [...paths.values()].find(({ pattern }) => pattern.test(path))?.methods;
    return methods && [...methods, 'OPTIONS'].join(', ');
  };

  return (request: FastifyRequest, reply: FastifyReply) => {
    const allow = allowed(request.url);
    if (allow) reply.header('allow', allow);
    if (request.method === 'OPTIONS') return reply.code(204).headers(PREFLIGHT_HEADERS).send();
    if (allow) {
      const details = { field: 'method', rule: 'enum', allowed: allow.split(', ') };
      return reply
        .code(405)
        .send(errorBody('INVALID_REQUEST', `${request.method} is not served here; ${allow} are.`, details));
    }
    return reply
      .code(404)
      .send(errorBody('NOT_FOUND', 'There is nothing at this path. GET / lists the endpoints.', { field: 'path' }));
  };
}

const toPattern = (path: string): RegExp => new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`);
