import { type Html, html } from '../../pages/html.ts';
import { join, money, page } from './checkout-pages.ts';
import { type Dispute, isWithdrawn } from './dispute.ts';
import type { Payment } from './payment.ts';
import type { Refund } from './refund.ts';
import { type Session, totalOf } from './session.ts';

/** A paid session with all that came after. */
export interface Purchase {
  readonly session: Session;
  readonly payment: Payment;
  readonly refunds: readonly Refund[];
  readonly disputes: readonly Dispute[];
}

/** What the processor's dashboard and the buyer's bank can do, in forms that post to the page's own address. */
export function dashboardPage(purchases: readonly Purchase[], bankPayments: readonly Session[]): string {
  return page(
    'Purchases',
    html`<h1>Purchases</h1>
<p>Refund them as the processor's dashboard does, or dispute them as the buyer's bank does. The newest come first.</p>
${join(bankPayments.map(bankPaymentOf))}${purchases.length > 0 ? join(purchases.map(purchaseOf)) : html`<p>Nothing was paid yet.</p>`}`,
  );
}

const bankPaymentOf = (session: Session): Html => html`<article>
<h2>${money(totalOf(session), session.currency)}, from a bank account</h2>
<p>${session.id}: on its way</p>
${statusForm('bank', session.id, [
  ['arrived', 'Let it arrive'],
  ['refused', 'Let the bank refuse it'],
])}
</article>`;

function purchaseOf({ session, payment, refunds, disputes }: Purchase): Html {
  const left = payment.amount - payment.amountRefunded;
  const refundable = left > 0 && !disputes.some(({ status }) => isWithdrawn(status));
  return html`<article>
<h2>${money(payment.amount, payment.currency)}</h2>
<p>${session.id}</p>
${refundable ? amountForm('Refund', 'refund', session.id, left) : ''}
${amountForm('Dispute', 'dispute', session.id, payment.amount)}
${join(refunds.map(refundOf))}${join(disputes.map(disputeOf))}
</article>`;
}

const refundOf = (
  refund: Refund,
): Html => html`<p>Refund of ${money(refund.amount, refund.currency)}: ${refund.status}</p>
${refund.failureBalanceTransaction ? '' : statusForm('settle', refund.id, [['failed', 'Let the refund fail']])}`;

const disputeOf = (
  dispute: Dispute,
): Html => html`<p>Dispute of ${money(dispute.amount, dispute.currency)}: ${dispute.status}</p>
${statusForm('decide', dispute.id, [
  ['won', 'The merchant wins'],
  ['lost', 'The buyer wins'],
])}`;

const amountForm = (label: string, action: string, id: string, amount: number): Html => html`<form method="post">
<input type="hidden" name="id" value="${id}">
<label>Amount in the currency's minor unit <input name="amount" inputmode="numeric" value="${amount}" required></label>
<button class="plain" name="action" value="${action}">${label}</button>
</form>`;

const statusForm = (action: string, id: string, choices: readonly (readonly [string, string])[]): Html =>
  html`<form method="post">
<input type="hidden" name="id" value="${id}"><input type="hidden" name="action" value="${action}">
${join(choices.map(([status, label]) => html`<button class="plain" name="status" value="${status}">${label}</button>`))}
</form>`;
