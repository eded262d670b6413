import type { FastifyInstance, FastifyReply } from 'fastify';
import { expiredPage, messagePage, pageHeaders, paidPage, paymentPage, refusedPage } from './checkout-pages.ts';
import { pay } from './payment.ts';
import type { ById } from './request.ts';
import { payPath, type Session, statusOf, successUrlOf } from './session.ts';
import type { Store } from './store.ts';

const LONGEST_EMAIL = 254;

/** Answers with a page; the session's merchant is where its forms may lead. */
export function sendPage(reply: FastifyReply, status: number, body: string, session?: Session): FastifyReply {
  return reply
    .code(status)
    .headers(pageHeaders(session && successUrlOf(session).origin))
    .send(body);
}

/** The hosted page: shows what is to be paid, and takes the buyer's decision. */
export function servePaymentPage(app: FastifyInstance, store: Store, merchant: string): void {
  const unknown = (reply: FastifyReply) =>
    sendPage(reply, 404, messagePage('No such payment', 'Nothing was paid. Start again where you wanted to pay.'));
  const show = (reply: FastifyReply, session: Session, declined = false) => {
    const status = statusOf(session);
    if (status === 'complete') return sendPage(reply, 200, paidPage(session, merchant), session);
    if (status === 'expired') return sendPage(reply, 410, expiredPage(session, merchant), session);
    return sendPage(reply, 200, paymentPage(session, merchant, declined), session);
  };
  app.setNotFoundHandler((_request, reply) => unknown(reply));
  app.setErrorHandler((error, _request, reply) => {
    const status = error instanceof Error && 'statusCode' in error ? Number(error.statusCode) : 500;
    const body = refusedPage('Nothing was paid. Go back and try again.');
    return sendPage(reply, status >= 400 && status < 500 ? status : 500, body);
  });

  app.get<ById>(payPath(':id'), async (request, reply) => {
    const session = store.state.sessions.get(request.params.id);
    return session ? show(reply, session) : unknown(reply);
  });

  app.post<ById>(payPath(':id'), async (request, reply) => {
    const session = store.state.sessions.get(request.params.id);
    if (!session) return unknown(reply);
    const form = new URLSearchParams(typeof request.body === 'string' ? request.body : '');
    const card = form.get('card');
    const email = form.get('email')?.trim().slice(0, LONGEST_EMAIL) || undefined;
    if (card === 'declined') return show(reply, session, true);
    if (card !== 'accepted' && card !== 'bank') return sendPage(reply, 400, refusedPage('Choose one of the buttons.'));
    const paid = await store.update<Session | undefined>((state) => {
      const current = state.sessions.get(session.id) ?? session;
      const status = statusOf(current);
      if (status === 'expired') return { result: undefined };
      // What is paid already is not paid again.
      if (status === 'complete') return { result: current };
      const { change, paid } = pay(current, card === 'bank' ? 'bank' : 'card', email);
      return { change, result: paid };
    });
    if (!paid) return show(reply, session);
    return reply.headers(pageHeaders(successUrlOf(paid).origin)).redirect(successUrlOf(paid).href, 303);
  });
}
