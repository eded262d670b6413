import type { ServiceOperations } from '../../contract/operations.ts';
import { routes } from '../../contract/routes.ts';
import type { OperationContext } from '../operation-context.ts';
import { fixedBody } from '../reply.ts';
import { guide, type ServiceOptions } from './guide.ts';

/** Health, guide and contract, which never change while the process runs. */
export function serviceOperations(options: ServiceOptions): ServiceOperations<OperationContext> {
  const endpoints = routes
    .filter((route) => route.listed !== undefined)
    .sort((a, b) => (a.listed ?? 0) - (b.listed ?? 0))
    .map((route) => `${route.method} ${route.path}`);
  const health = fixedBody({
    service: options.serviceName,
    status: 'ok' as const,
    documentation: '/docs' as const,
    openapi: '/openapi.json' as const,
    endpoints,
  });
  const contract = fixedBody(options.contract);
  const guideBody = fixedBody(guide(options));
  return {
    getHealth: async () => ({ status: 200, body: health }),
    getGuide: async () => ({ status: 200, body: guideBody }),
    getContract: async () => ({ status: 200, body: contract }),
  };
}
