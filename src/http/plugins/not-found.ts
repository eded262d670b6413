import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Route } from '../../contract/routes.ts';
import { logError, sendWayOn } from '../reply.ts';
import { errorBody } from '../structured-error.ts';

/**
 * Answers OPTIONS on any path, another method on a known path (405 with `allow`, R51), and the rest (404). Another method
 * is also HEAD, where a GET charges or credits (`noHead`).
 */
export function createNotFoundHandler(routes: readonly Route[], preflightHeaders: Readonly<Record<string, string>>) {
  const patterns = routes.map((route) => ({ ...route, pattern: toPattern(route.path) }));
  const allowed = ({ url, server }: FastifyRequest) => {
    const path = url.split('?', 1)[0] ?? '';
    const served = patterns.filter(
      (route) => route.pattern.test(path) && server.hasRoute({ method: route.method, url: route.path }),
    );
    const methods = served.flatMap(({ method, noHead }) => (method === 'GET' && !noHead ? [method, 'HEAD'] : [method]));
    return methods.length > 0 ? [...methods, 'OPTIONS'].join(', ') : undefined;
  };

  return (request: FastifyRequest, reply: FastifyReply) => {
    const allow = allowed(request);
    if (allow) reply.header('allow', allow);
    if (request.method === 'OPTIONS') return reply.code(204).headers(preflightHeaders).send();
    if (allow) {
      const details = { field: 'method', rule: 'enum', allowed: allow.split(', ') };
      const message = `The method ${request.method} is not supported at this path. Use ${allow}. You were not charged.`;
      const body = errorBody('INVALID_REQUEST', message, details);
      logError(body.error, reply);
      return reply.code(405).send(body);
    }
    const message = 'This path does not exist. GET / lists the endpoints.';
    const body = errorBody('NOT_FOUND', message, { field: 'path' });
    logError(body.error, reply);
    return sendWayOn(reply, 404, body) ?? reply.code(404).send(body);
  };
}

const toPattern = (path: string): RegExp => new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`);
