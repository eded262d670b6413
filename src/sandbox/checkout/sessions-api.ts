import type { FastifyInstance } from 'fastify';
import { existing } from './existing.ts';
import { readExpansions } from './expand.ts';
import { once } from './idempotency.ts';
import { listOf, readPage } from './list.ts';
import { type ById, bodyOf, queryOf } from './request.ts';
import { createSession, expire, present, type Session, statusOf } from './session.ts';
import type { Store } from './store.ts';

const SESSIONS = '/checkout/sessions';

/** Create, retrieve, list and expire a session. */
export function serveSessions(app: FastifyInstance, store: Store, origin: string): void {
  const show = (session: Session) => present(session, origin);

  app.post(SESSIONS, async (request, reply) =>
    reply.send(
      await once(store, request, (state) => {
        const parameters = bodyOf(request);
        const expand = readExpansions(parameters);
        const session = createSession(parameters);
        return { change: { sessions: [session] }, result: expand(show(session), () => state) };
      }),
    ),
  );

  app.post<ById>(`${SESSIONS}/:id/expire`, async (request, reply) =>
    reply.send(
      await once(store, request, (state) => {
        const parameters = bodyOf(request);
        const expand = readExpansions(parameters);
        parameters.end();
        const expired = expire(existing(state, 'sessions', request.params.id, 'session'));
        return { change: { sessions: [expired] }, result: expand(show(expired), () => state) };
      }),
    ),
  );

  app.get<ById>(`${SESSIONS}/:id`, async (request) => {
    const parameters = queryOf(request);
    const expand = readExpansions(parameters);
    parameters.end();
    return expand(show(existing(store.state, 'sessions', request.params.id, 'session')), () => store.state);
  });

  app.get(SESSIONS, async (request) => {
    const parameters = queryOf(request);
    const page = readPage(parameters);
    const status = parameters.choice('status', ['open', 'complete', 'expired']);
    const paymentIntent = parameters.text('payment_intent', 200);
    const customer = parameters.group('customer_details');
    const email = customer?.text('email', 800)?.toLowerCase();
    customer?.end();
    const expand = readExpansions(parameters);
    parameters.end();
    const matches = (session: Session) =>
      (status === undefined || statusOf(session) === status) &&
      (paymentIntent === undefined || session.paymentIntent === paymentIntent) &&
      (email === undefined || session.buyerEmail?.toLowerCase() === email);
    return expand(listOf(store.state.sessions, page, SESSIONS, { matches, show }), () => store.state);
  });
}
