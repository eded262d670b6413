import { join } from 'node:path';
import Fastify from 'fastify';
import { isOwnHost } from '../../lib/own-host.ts';
import { freePort } from '../free-port.ts';
import { serveApi } from './api.ts';
import { API_PREFIX } from './api-prefix.ts';
import { sendPage, servePaymentPage } from './card-payment.ts';
import { messagePage } from './checkout-pages.ts';
import { serveDashboard } from './dashboard.ts';
import { type Operations, operationsOn } from './operations.ts';
import { Store } from './store.ts';

const BODY_LIMIT = 65_536;

export interface CheckoutOptions {
  /** The state is in its file checkout.json. Only one process at a time may use it. */
  readonly dataDir: string;
  readonly host?: string;
  /** By default the former one, so that open payment pages stay valid, or any that is free. */
  readonly port?: number;
  /** The key that API calls carry as `Authorization: Bearer`. */
  readonly secretKey: string;
  /** Who is paid, as the page names them. */
  readonly merchant?: string;
}

export interface RunningCheckout extends Operations {
  /** Of the payment pages. */
  readonly origin: string;
  /** Where a client of Stripe's API goes instead of api.stripe.com. */
  readonly apiBase: string;
  close(): Promise<void>;
}

/**
 * Starts the sandbox's card processor: a server of its own that speaks the part of Stripe's API which sells one payment
 * through hosted checkout and tells of refunds and disputes, and shows the payment page and a dashboard. Every change is on disk before it is answered.
 */
export async function startCheckout(options: CheckoutOptions): Promise<RunningCheckout> {
  const { secretKey, host = '127.0.0.1', merchant = 'Speechgate' } = options;
  const store = await Store.open(join(options.dataDir, 'checkout.json'));
  const port = options.port || (await freePort(store.state.port || undefined));
  const origin = `http://${host}:${port}`;

  const app = Fastify({
    bodyLimit: BODY_LIMIT,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 1000 },
    frameworkErrors: (_error, _request, reply) =>
      sendPage(reply, 400, messagePage('That did not work', 'This is no address here.')),
  });
  app.addHook('onRequest', async (request, reply) => {
    if (isOwnHost(request.headers.host)) return;
    return reply.code(421).type('text/plain').send(`The local checkout does not go by that host name. Use ${origin}.`);
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, (_request, body, done) =>
    done(null, body),
  );
  const operations = operationsOn(store);
  app.register(async (scope) => servePaymentPage(scope, store, merchant));
  app.register(async (scope) => serveDashboard(scope, store, operations));
  app.register(async (scope) => serveApi(scope, store, { secretKey, origin }), { prefix: API_PREFIX });
  await app.listen({ host, port });
  await store.update(() => ({ change: { port }, result: undefined }));
  const close = async () => {
    await app.close();
    await store.close();
  };
  return { ...operations, origin, apiBase: origin, close };
}
