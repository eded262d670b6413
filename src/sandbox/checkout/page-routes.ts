import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { ApiError, toApiError } from './api-error.ts';
import { openDispute, refund, settleRefund, updateDispute } from './clawbacks.ts';
import type { Session } from './objects.ts';
import { dashboardPage, messagePage, type Purchase, pageHeaders, refusedPage, sessionPage } from './pages.ts';
import { integer, readParameters, text } from './parameters.ts';
import { current, endBankPayment, payPath, paySession, successUrlOf } from './sessions.ts';
import type { Store } from './store.ts';

const DASHBOARD = '/dashboard';
const SHOWN_PURCHASES = 20;
const MAX_EMAIL_LENGTH = 254;

interface ById {
  readonly Params: { readonly id: string };
}

export function sendPage(reply: FastifyReply, status: number, body: string, session?: Session): FastifyReply {
  return reply
    .code(status)
    .headers(pageHeaders(session && successUrlOf(session).origin))
    .send(body);
}

function refuseWithPages(app: FastifyInstance, wayBack: string): void {
  app.setErrorHandler((error, _request, reply) => {
    const { status, message } = toApiError(error);
    return sendPage(reply, status, refusedPage(message, wayBack));
  });
}

export function servePaymentPage(app: FastifyInstance, store: Store, merchant: string): void {
  refuseWithPages(app, 'Back to the payment');
  const sessionOf = (id: string): Session | undefined => {
    const session = store.find('checkout.session', id);
    return session && current(session);
  };
  const show = (reply: FastifyReply, session: Session | undefined, declined = false) => {
    if (!session) {
      const message = 'Nothing was paid. Start again where you wanted to pay.';
      return sendPage(reply, 404, messagePage('No such payment', message));
    }
    const intent = store.find('payment_intent', session.payment_intent ?? '');
    const body = sessionPage(session, intent, merchant, declined);
    return sendPage(reply, session.status === 'expired' ? 410 : 200, body, session);
  };
  app.setNotFoundHandler((_request, reply) => show(reply, undefined));

  app.get<ById>(payPath(':id'), async (request, reply) => show(reply, sessionOf(request.params.id)));

  app.post<ById>(payPath(':id'), async (request, reply) => {
    const session = sessionOf(request.params.id);
    const form = new URLSearchParams(String(request.body ?? ''));
    const card = form.get('card');
    const email = form.get('email')?.trim().slice(0, MAX_EMAIL_LENGTH) || undefined;
    if (!session || session.status === 'expired' || card === 'declined') return show(reply, session, true);
    if (card !== 'accepted' && card !== 'bank') throw new ApiError(400, 'Choose one of the buttons.');
    if (session.status === 'open') store.save(...paySession(session, card === 'bank' ? 'bank' : 'card', email));
    return reply.headers(pageHeaders(successUrlOf(session).origin)).redirect(successUrlOf(session).href, 303);
  });
}

const id = text(200);
const amount = integer(1, Number.MAX_SAFE_INTEGER).optional();

const DashboardForm = z.discriminatedUnion('action', [
  z.strictObject({ action: z.enum(['refund', 'dispute']), id, amount }),
  z.strictObject({ action: z.literal('settle'), id, status: z.literal('failed') }),
  z.strictObject({ action: z.literal('decide'), id, status: z.enum(['won', 'lost']) }),
  z.strictObject({ action: z.literal('bank'), id, status: z.enum(['arrived', 'refused']) }),
]);

export function serveDashboard(app: FastifyInstance, store: Store): void {
  refuseWithPages(app, 'Back to the purchases');
  app.get(DASHBOARD, (_request, reply) => sendPage(reply, 200, dashboardPage(newestPurchases(store))));

  app.post(DASHBOARD, async (request, reply) => {
    const site = request.headers['sec-fetch-site'] ?? 'same-origin';
    if (site !== 'same-origin') throw new ApiError(403, 'That came from another page. Nothing was changed.');
    const form = readParameters(DashboardForm, String(request.body ?? ''));
    if (form.action === 'refund') refund(store, { session: form.id, amountCents: form.amount });
    if (form.action === 'dispute') openDispute(store, { session: form.id, amountCents: form.amount });
    if (form.action === 'settle') settleRefund(store, form.id, form.status);
    if (form.action === 'decide') updateDispute(store, form.id, form.status);
    if (form.action === 'bank') endBankPayment(store, form.id, form.status);
    return reply.redirect(DASHBOARD, 303);
  });
}

function newestPurchases(store: Store): Purchase[] {
  const sessions = store.all('checkout.session').filter(({ status }) => status === 'complete');
  const newest = sessions.slice(-SHOWN_PURCHASES).reverse();
  return newest.flatMap((session) => {
    const intent = store.find('payment_intent', session.payment_intent ?? '');
    if (intent?.status === 'requires_payment_method') return [];
    const ofIntent = ({ payment_intent }: { readonly payment_intent: string }) => payment_intent === intent?.id;
    return {
      session,
      charge: store.find('charge', intent?.latest_charge ?? ''),
      refunds: store.all('refund').filter(ofIntent),
      disputes: store.all('dispute').filter(ofIntent),
    };
  });
}
