import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { type Html, html } from '../../http/pages/html.ts';
import { ApiError } from './api-error.ts';
import { isWithdrawn, openDispute, refund, settleRefund, updateDispute } from './clawbacks.ts';
import type { Dispute, Refund, Session } from './objects.ts';
import { join, money, page, showErrors, withPageHeaders } from './page.ts';
import { integer, readParameters, text } from './parameters.ts';
import { endBankPayment } from './sessions.ts';
import type { Store } from './store.ts';

const DASHBOARD = '/dashboard';
const SHOWN_PURCHASES = 20;

const id = text(200);
const amount = integer(1, Number.MAX_SAFE_INTEGER).optional();

const DashboardForm = z.discriminatedUnion('action', [
  z.strictObject({ action: z.enum(['refund', 'dispute']), id, amount }),
  z.strictObject({ action: z.literal('settle'), id, status: z.literal('failed') }),
  z.strictObject({ action: z.literal('decide'), id, status: z.enum(['won', 'lost']) }),
  z.strictObject({ action: z.literal('bank'), id, status: z.enum(['arrived', 'refused']) }),
]);

export function serveDashboard(app: FastifyInstance, store: Store): void {
  showErrors(app, 'Back to the purchases');
  app.get(DASHBOARD, async (_request, reply) => withPageHeaders(reply).send(dashboardPage(store)));

  app.post(DASHBOARD, async (request, reply) => {
    const site = request.headers['sec-fetch-site'] ?? 'same-origin';
    if (site !== 'same-origin')
      throw new ApiError(403, 'The form was sent by another page. Send it from this one. Nothing was changed.');
    const form = readParameters(DashboardForm, String(request.body ?? ''));
    if (form.action === 'refund') refund(store, { session: form.id, amountCents: form.amount });
    if (form.action === 'dispute') openDispute(store, { session: form.id, amountCents: form.amount });
    if (form.action === 'settle') settleRefund(store, form.id, form.status);
    if (form.action === 'decide') updateDispute(store, form.id, form.status);
    if (form.action === 'bank') endBankPayment(store, form.id, form.status);
    return reply.redirect(DASHBOARD, 303);
  });
}

function dashboardPage(store: Store): string {
  const sessions = store.all('checkout.session').filter(({ status }) => status === 'complete');
  const newest = sessions.slice(-SHOWN_PURCHASES).reverse();
  const purchases = newest.flatMap((session) => purchase(store, session) ?? []);
  return page(
    'Purchases',
    html`<p>Refund them as the processor's dashboard does, or dispute them as the buyer's bank does. The newest come first.</p>
${purchases.length > 0 ? join(purchases) : html`<p>There is no purchase yet. Buy credit at /top-up of the service.</p>`}`,
  );
}

/** Undefined if the bank has refused the payment. */
function purchase(store: Store, session: Session): Html | undefined {
  const intent = store.find('payment_intent', session.payment_intent ?? '');
  if (intent?.status === 'requires_payment_method') return undefined;
  const charge = store.find('charge', intent?.latest_charge ?? '');
  if (!charge) {
    return html`<article>
<h2>${money(session.amount_total, session.currency)}, from a bank account</h2>
<dl><dt>Session, on its way</dt><dd>${session.id}</dd></dl>
${statusForm('bank', session.id, { arrived: 'Let it arrive', refused: 'Let the bank refuse it' })}
</article>`;
  }
  const refunds = store.all('refund').filter((refund) => refund.charge === charge.id);
  const disputes = store.all('dispute').filter((dispute) => dispute.charge === charge.id);
  const left = charge.amount - charge.amount_refunded;
  const isRefundable = left > 0 && !disputes.some(({ status }) => isWithdrawn(status));
  return html`<article>
<h2>${money(charge.amount, charge.currency)}</h2>
<dl><dt>Session</dt><dd>${session.id}</dd></dl>
${isRefundable ? amountForm('Refund', 'refund', session.id, left) : ''}
${amountForm('Dispute', 'dispute', session.id, charge.amount)}
${join(refunds.map(refundOf))}${join(disputes.map(disputeOf))}
</article>`;
}

const refundOf = ({ id, amount, currency, status, failure_balance_transaction }: Refund): Html =>
  html`<p>Refund of ${money(amount, currency)}: ${status}</p>
${failure_balance_transaction ? '' : statusForm('settle', id, { failed: 'Let the refund fail' })}`;

const disputeOf = ({ id, amount, currency, status }: Dispute): Html =>
  html`<p>Dispute of ${money(amount, currency)}: ${status}</p>
${statusForm('decide', id, { won: 'The merchant wins', lost: 'The buyer wins' })}`;

const amountForm = (label: string, action: string, id: string, amount: number): Html => html`<form method="post">
<input type="hidden" name="id" value="${id}">
<label>Amount in the smallest unit of the currency, such as cents <input name="amount" inputmode="numeric" value="${amount}" required></label>
<button class="plain" name="action" value="${action}">${label}</button>
</form>`;

const statusForm = (action: string, id: string, labels: Readonly<Record<string, string>>): Html =>
  html`<form method="post">
<input type="hidden" name="id" value="${id}"><input type="hidden" name="action" value="${action}">
${join(Object.entries(labels).map(([status, label]) => html`<button class="plain" name="status" value="${status}">${label}</button>`))}
</form>`;
