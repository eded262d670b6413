import type { FastifyInstance, FastifyReply } from 'fastify';
import { ApiError } from './api-error.ts';
import { sendPage } from './card-payment.ts';
import { refusedPage } from './checkout-pages.ts';
import { dashboardPage, type Purchase } from './dashboard-pages.ts';
import { parseForm } from './form.ts';
import type { Operations } from './operations.ts';
import { Parameters } from './parameters.ts';
import { formText } from './request.ts';
import type { Store } from './store.ts';

const DASHBOARD = '/dashboard';
const SHOWN = 20;

/** The page on which a person in the sandbox refunds and disputes purchases. */
export function serveDashboard(app: FastifyInstance, store: Store, operations: Operations): void {
  app.setErrorHandler((error, _request, reply) => {
    if (error instanceof ApiError) return refuse(reply, error.status, error.message);
    const status = error instanceof Error && 'statusCode' in error ? Number(error.statusCode) : 500;
    return refuse(reply, status >= 400 && status < 500 ? status : 500, 'Nothing was changed. Go back and try again.');
  });

  app.get(DASHBOARD, (_request, reply) => sendPage(reply, 200, dashboardPage(purchases(store), bankPayments(store))));

  app.post(DASHBOARD, async (request, reply) => {
    const site = request.headers['sec-fetch-site'] ?? 'same-origin';
    if (site !== 'same-origin') throw new ApiError(403, 'invalid_request_error', 'That came from another page.');
    const parameters = new Parameters(parseForm(formText(request)));
    const id = parameters.required('id', parameters.text('id', 200));
    const amountCents = parameters.integer('amount', 1, Number.MAX_SAFE_INTEGER);
    const wanted = { session: id, ...(amountCents !== undefined && { amountCents }) };
    const action = parameters.required(
      'action',
      parameters.choice('action', ['refund', 'dispute', 'settle', 'decide', 'bank']),
    );
    if (action === 'refund') await operations.refund(wanted);
    if (action === 'dispute') await operations.openDispute(wanted);
    if (action === 'settle') await operations.settleRefund(id, 'failed');
    if (action === 'decide') {
      const status = parameters.required('status', parameters.choice('status', ['won', 'lost']));
      await operations.updateDispute(id, status);
    }
    if (action === 'bank') {
      const end = parameters.required('status', parameters.choice('status', ['arrived', 'refused']));
      await operations.endBankPayment(id, end);
    }
    return reply.redirect(DASHBOARD, 303);
  });
}

const refuse = (reply: FastifyReply, status: number, message: string) =>
  sendPage(reply, status, refusedPage(message, 'Back to the purchases'));

const bankPayments = ({ state }: Store) =>
  [...state.sessions.values()].filter((session) => session.state === 'on_its_way').reverse();

function purchases({ state }: Store): Purchase[] {
  const newest = [...state.payments.values()].slice(-SHOWN).reverse();
  const sessions = new Map([...state.sessions.values()].map((session) => [session.paymentIntent, session]));
  return newest.flatMap((payment) => {
    const session = sessions.get(payment.id);
    if (!session) return [];
    const disputes = [...state.disputes.values()].filter(({ paymentIntent }) => paymentIntent === payment.id);
    const refunds = [...state.refunds.values()].filter(({ paymentIntent }) => paymentIntent === payment.id);
    return [{ session, payment, refunds, disputes }];
  });
}
