import { join } from 'node:path';
import Fastify from 'fastify';
import { closeOnFailure } from '../../lib/close-on-failure.ts';
import { isOwnHost } from '../../lib/own-host.ts';
import { freePort } from '../free-port.ts';
import { API_PREFIX, serveApi } from './api.ts';
import { serveDashboard } from './dashboard.ts';
import { messagePage, withPageHeaders } from './page.ts';
import { servePaymentPage } from './payment-page.ts';
import { Store } from './store.ts';

const BODY_LIMIT_BYTES = 65_536;

interface CheckoutOptions {
  readonly dataDir: string;
  readonly port?: number;
  readonly secretKey: string;
}

export interface RunningCheckout {
  readonly origin: string;
  readonly store: Store;
  close(): Promise<void>;
}

/** Starts the sandbox's card processor: a part of Stripe's API, the payment page and a dashboard. */
export async function startCheckout(options: CheckoutOptions): Promise<RunningCheckout> {
  const store = await Store.open(join(options.dataDir, 'checkout.json'));
  return closeOnFailure(store, () => serveCheckout(store, options));
}

async function serveCheckout(store: Store, options: CheckoutOptions): Promise<RunningCheckout> {
  const port = options.port || (await freePort(store.find('port', 'port')?.port));
  const origin = `http://127.0.0.1:${port}`;

  const app = Fastify({
    bodyLimit: BODY_LIMIT_BYTES,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 1000 },
    frameworkErrors: (_error, _request, reply) =>
      withPageHeaders(reply).code(400).send(messagePage('The request failed', 'This URL is not valid. Check it.')),
  });
  app.addHook('onRequest', async (request, reply) => {
    if (isOwnHost(request.headers.host)) return;
    return reply.code(421).type('text/plain').send(`The host header is not the local checkout's. Use ${origin}.`);
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, (_request, body, done) =>
    done(null, body),
  );
  app.register(async (scope) => servePaymentPage(scope, store));
  app.register(async (scope) => serveDashboard(scope, store));
  app.register(async (scope) => serveApi(scope, store, { secretKey: options.secretKey, origin }), {
    prefix: API_PREFIX,
  });
  await app.listen({ host: '127.0.0.1', port });
  store.save({ id: 'port', object: 'port', port });
  return {
    origin,
    store,
    close: async () => {
      await app.close();
      await store.close();
    },
  };
}
