import type { ServiceOperations } from '../../contract/operations.ts';
import { routes } from '../../contract/routes.ts';
import { NO_SAMPLES, type VoiceSamples } from '../../speech/voice-samples.ts';
import type { OperationContext } from '../operations.ts';
import { fixedBody, PRIVATE_CACHE } from '../reply.ts';
import { docsPage } from './docs-page.ts';
import { agentNotes, guide, type ServiceOptions } from './guide.ts';
import { type HomeOptions, homePage } from './home-page.ts';

interface Options extends ServiceOptions, HomeOptions {
  /** In a sandbox: the account of the page at `/`, once there is one. */
  readonly demoAccount?: (() => string | undefined) | undefined;
  readonly samples: VoiceSamples;
}

const VARY = { vary: 'accept' } as const;

/** Health with the list of endpoints, legacy guide, canonical contract (R41); pages for people (R69). */
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
  const guideBody = fixedBody(guide(options));
  const notes = agentNotes(options);
  const docs = docsPage(guideBody, options);
  const { demoAccount } = options;
  const page = (samples = NO_SAMPLES, account?: string) => homePage(options, samples, demoAccount && { account });
  let latest = { samples: NO_SAMPLES, home: page() };
  return {
    getHealth: async (_request, context) => {
      if (!context.prefersHtml()) return { status: 200, headers: VARY, type: 'application/json', body: health };
      // Scripts of other origins can read answers, but not be a page load.
      const account = context.isPageLoad ? demoAccount?.() : undefined;
      const samples = await options.samples.known();
      if (samples !== latest.samples) latest = { samples, home: page(samples) };
      const { body, policy } = account === undefined ? latest.home : page(samples, account);
      const privacy = account === undefined ? {} : { 'cache-control': PRIVATE_CACHE };
      const headers = { ...VARY, ...privacy, 'content-security-policy': policy };
      return { status: 200, headers, type: 'text/html', body };
    },
    getGuide: async (_request, context) => {
      if (!context.prefersHtml()) return { status: 200, headers: VARY, type: 'application/json', body: guideBody };
      const headers = { ...VARY, 'content-security-policy': docs.policy };
      return { status: 200, headers, type: 'text/html', body: docs.body };
    },
    getAgentNotes: async () => ({ status: 200, body: notes }),
    getContract: async () => ({ status: 200, body: contract }),
  };
}
