import type { ServiceOperations } from '../../contract/operations.ts';
import { routes } from '../../contract/routes.ts';
import type { OpenApiDocument } from '../../contract/types.ts';
import type { OperationContext } from '../operation-context.ts';
import { fixedBody } from '../reply.ts';
import { guide, type ServiceOptions } from './guide.ts';

interface Options extends ServiceOptions {
  /** The contract while nothing can be paid on the chain. */
  readonly offChain: OpenApiDocument;
  readonly hasOtherDomain: () => Promise<boolean>;
}

/** Health, guide and contract. */
export function serviceOperations(options: Options): ServiceOperations<OperationContext> {
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
  const offChain = fixedBody(options.offChain);
  const guideBody = fixedBody(guide(options));
  return {
    getHealth: async () => ({ status: 200, body: health }),
    getGuide: async () => ({ status: 200, body: guideBody }),
    getContract: async () => ({ status: 200, body: (await options.hasOtherDomain()) ? offChain : contract }),
  };
}
