import type { ServiceOperations } from '../contract/operations.ts';
import { routes } from '../contract/routes.ts';
import type { OpenApiDocument } from '../contract/types.ts';
import { fixedBody } from '../http/fixed-body.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { guide } from './guide.ts';

export interface ServiceOptions {
  readonly serviceName: string;
  readonly baseUrl: string;
  readonly speechTimeoutMs: number;
  /** As it is served. */
  readonly contract: OpenApiDocument;
}

/** The service's own pages: health, guide and contract. All of them are fixed for the life of the process. */
export function serviceOperations(options: ServiceOptions): ServiceOperations<OperationContext> {
  const health = fixedBody({
    service: options.serviceName,
    status: 'ok' as const,
    documentation: '/docs' as const,
    openapi: '/openapi.json' as const,
    endpoints: listedEndpoints(),
  });
  const contract = fixedBody(options.contract);
  const guideBody = fixedBody(guide({ ...options, version: options.contract.info.version }));
  return {
    getHealth: async () => ({ status: 200, body: health }),
    getGuide: async () => ({ status: 200, body: guideBody }),
    getContract: async () => ({ status: 200, body: contract }),
  };
}

/** The operations that the contract marks as listed, in its order. */
const listedEndpoints = (): string[] =>
  routes
    .filter((route) => route.listed !== undefined)
    .sort((a, b) => (a.listed ?? 0) - (b.listed ?? 0))
    .map((route) => `${route.method} ${route.path}`);
