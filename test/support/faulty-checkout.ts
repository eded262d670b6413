import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import type Stripe from 'stripe';
import type { Test } from 'tap';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import type { Session } from '../../src/sandbox/checkout/objects.ts';
import { type Operations, operationsOn, stripeAt } from './checkout.ts';
import { serve } from './listening.ts';
import { sandboxFolder } from './sandbox-folder.ts';

export interface RecordedCall {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  /** What the checkout answered; undefined when a fault kept the call from it. */
  readonly answer: string | undefined;
}

/** Answers a call in the checkout's place; false lets the call through to it. */
export type Fault = (method: string, path: string, response: ServerResponse) => boolean;

export interface FaultyCheckout extends Operations {
  /** STRIPE_API_BASE for a gateway: the checkout behind a recorder that can fail. */
  readonly apiBase: string;
  readonly secretKey: string;
  /** What came in through apiBase. */
  readonly calls: RecordedCall[];
  fault: Fault;
  /** Changes what the checkout answered, before it is passed on. */
  rewrite: (path: string, answer: string) => string;
  /** Told each answer of the checkout before it is passed on. */
  beforeAnswer: (call: RecordedCall) => Promise<void> | void;
  /** The SDK on the checkout itself: neither recorded nor faulty. */
  readonly stripe: Stripe;
  /** Presses a button on the session's page. */
  pay(sessionId: string, by?: 'accepted' | 'bank'): Promise<void>;
}

/** The local checkout with the real SDK's view of it, and a recorder in front that can break what passes. */
export async function startFaultyCheckout(
  t: Test,
  options: { secretKey?: string; sessions?: readonly Session[] } = {},
): Promise<FaultyCheckout> {
  const { secretKey = 'sk_test_checkout', sessions = [] } = options;
  const running = await startCheckout({ dataDir: await sandboxFolder(t), secretKey });
  for (const session of sessions) running.store.save(session);

  const recorder = createServer(async (incoming, response) => {
    const { method = '', url = '' } = incoming;
    const [path = '', query] = url.split('?', 2);
    const record = { method, path, query: new URLSearchParams(query) };
    const body = await text(incoming);
    if (checkout.fault(method, path, response)) {
      checkout.calls.push({ ...record, answer: undefined });
      return;
    }
    const { authorization = '', 'idempotency-key': key, 'content-type': type } = incoming.headers;
    const passed = await fetch(`${running.origin}${url}`, {
      method,
      headers: {
        authorization,
        ...(key !== undefined && { 'idempotency-key': String(key) }),
        ...(type !== undefined && { 'content-type': type }),
      },
      ...(method === 'POST' && { body }),
    });
    const call = { ...record, answer: checkout.rewrite(path, await passed.text()) };
    checkout.calls.push(call);
    await checkout.beforeAnswer(call);
    response.writeHead(passed.status, { 'content-type': 'application/json' }).end(call.answer);
  });
  t.teardown(() => running.close());

  const checkout: FaultyCheckout = {
    ...operationsOn(running),
    apiBase: await serve(t, recorder),
    secretKey,
    calls: [],
    fault: () => false,
    rewrite: (_path, answer) => answer,
    beforeAnswer: () => {},
    stripe: stripeAt(running.origin, secretKey),
    async pay(sessionId, by = 'accepted') {
      const answer = await fetch(`${running.origin}/c/pay/${sessionId}`, {
        method: 'POST',
        body: new URLSearchParams({ card: by }),
        redirect: 'manual',
      });
      assert.equal(answer.status, 303);
    },
  };
  return checkout;
}

/** Faults of a processor, each with what it does to any call. */
export const faults: Record<string, Fault> = {
  'connection reset': (_method, _path, response) => {
    response.socket?.destroy();
    return true;
  },
  '500 without a body': answerWith(500, ''),
  '500 in its own form': answerWith(500, '{"error":{"type":"api_error","message":"secret-of-the-processor"}}'),
  '429': answerWith(429, '{"error":{"type":"rate_limit_error","message":"secret-of-the-processor"}}'),
  '401': answerWith(401, '{"error":{"type":"invalid_request_error","message":"secret-of-the-processor"}}'),
  'HTML as a success': answerWith(200, '<html>secret-of-the-processor</html>'),
  'a JSON string': answerWith(200, '"secret-of-the-processor"'),
  'JSON null': answerWith(200, 'null'),
  'a JSON array': answerWith(200, '[{"id":"cs_test_1"}]'),
  'an empty object': answerWith(200, '{}'),
  'another session, and a list of nonsense': answerWith(
    200,
    '{"id":"cs_test_other","payment_status":"paid","amount_total":500,"data":[null,7,{"payment_status":"paid"}]}',
  ),
  'a redirect': (_method, _path, response) => {
    response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end('{}');
    return true;
  },
  '404 without an error': answerWith(404, '{}'),
};

export function answerWith(status: number, body: string): Fault {
  return (_method, _path, response) => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(body);
    return true;
  };
}

/** A session of 7 dollars as the local checkout keeps it, paid unless the changes say otherwise. */
export const storedSession = (
  created: number,
  metadata: Record<string, string>,
  changes: Partial<Session> = {},
): Session => ({
  id: `cs_test_${randomUUID()}`,
  object: 'checkout.session',
  amount_total: 700,
  created,
  currency: 'usd',
  customer_details: null,
  expires_at: created + 24 * 60 * 60,
  line_items: { object: 'list', data: [] },
  livemode: false,
  mode: 'payment',
  metadata,
  payment_intent: 'pi_1',
  payment_status: 'paid',
  status: 'complete',
  success_url: 'http://speechgate.test/back',
  ...changes,
});
