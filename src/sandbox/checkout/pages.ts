import { type Html, html } from '../../http/pages/html.ts';
import { pageContentSecurityPolicy, renderPage } from '../../http/pages/page.ts';
import { isWithdrawn } from './clawbacks.ts';
import type { Charge, Dispute, LineItem, PaymentIntent, Refund, Session } from './objects.ts';
import { successUrlOf } from './sessions.ts';

/** @param merchantOrigin another origin that forms of the page may redirect to (R19) */
export function pageHeaders(merchantOrigin?: string): Record<string, string> {
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': pageContentSecurityPolicy(merchantOrigin ? [merchantOrigin] : []),
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  };
}

export function sessionPage(
  session: Session,
  intent: PaymentIntent | undefined,
  merchant: string,
  declined = false,
): string {
  if (session.status === 'open') return paymentPage(session, merchant, declined);
  if (session.status === 'complete') return paidPage(session, intent, merchant);
  const title = 'This payment has expired';
  return page(title, html`<p>Nothing was paid. Start again at ${merchant}.</p>\n${back(session, merchant)}`);
}

function paymentPage(session: Session, merchant: string, declined: boolean): string {
  const amount = money(session.amount_total, session.currency);
  return page(
    `Pay ${merchant}`,
    html`<dl><dt>Amount</dt><dd class="amount">${amount}</dd></dl>
${declined ? html`<p class="problem" role="alert">The card was declined. Nothing was paid; you can try again.</p>` : ''}
<ul>${join(session.line_items.data.map((item) => itemOf(item, session.currency)))}</ul>
<form method="post"><label for="email">Email, for the receipt (optional)</label>
<input id="email" name="email" type="email" maxlength="254" autocomplete="email"><button name="card" value="accepted">${declined ? 'Try again: pay' : 'Pay'} ${amount}</button>
<button class="plain" name="card" value="bank">Pay from a bank account, which takes days</button></form>
<form method="post"><button class="plain" name="card" value="declined">Decline the card</button></form>
${back(session, merchant)}`,
  );
}

function paidPage(session: Session, intent: PaymentIntent | undefined, merchant: string): string {
  const [title, text] =
    intent?.status === 'processing'
      ? ['On its way', 'is being made by your bank. You have nothing more to do.']
      : intent?.status === 'requires_payment_method'
        ? ['Not paid', 'was refused by your bank. Nothing was charged.']
        : ['Already paid', 'is complete. Nothing more will be charged.'];
  return page(
    title,
    html`<dl><dt>Amount</dt><dd class="amount">${money(session.amount_total, session.currency)}</dd></dl>
<p>This payment to ${merchant} ${text}</p>
<a class="button" href="${successUrlOf(session).href}">Continue to ${merchant}</a>`,
  );
}

export function messagePage(title: string, message: string): string {
  return page(title, html`<p>${message}</p>`);
}

export function refusedPage(message: string, wayBack: string): string {
  const title = 'That did not work';
  return page(title, html`<p>${message}</p>\n<a class="button plain" href="">${wayBack}</a>`);
}

function itemOf({ description, quantity, amount_total }: LineItem, currency: string): Html {
  const count = quantity > 1 ? ` × ${quantity}` : '';
  return html`<li><span>${description ?? ''}${count}</span> <span>${money(amount_total, currency)}</span></li>`;
}

const back = (session: Session, merchant: string): Html =>
  session.cancel_url ? html`<a class="button plain" href="${session.cancel_url}">Go back to ${merchant}</a>` : html``;

export interface Purchase {
  readonly session: Session;
  readonly charge: Charge | undefined;
  readonly refunds: readonly Refund[];
  readonly disputes: readonly Dispute[];
}

export function dashboardPage(purchases: readonly Purchase[]): string {
  return page(
    'Purchases',
    html`<p>Refund them as the processor's dashboard does, or dispute them as the buyer's bank does. The newest come first.</p>
${purchases.length > 0 ? join(purchases.map(purchaseOf)) : html`<p>Nothing was paid yet.</p>`}`,
  );
}

function purchaseOf({ session, charge, refunds, disputes }: Purchase): Html {
  const { id, currency, amount_total } = session;
  if (!charge) {
    return html`<article>
<h2>${money(amount_total, currency)}, from a bank account</h2>
<dl><dt>Session, on its way</dt><dd>${id}</dd></dl>
${statusForm('bank', id, { arrived: 'Let it arrive', refused: 'Let the bank refuse it' })}
</article>`;
  }
  const left = charge.amount - charge.amount_refunded;
  const isRefundable = left > 0 && !disputes.some(({ status }) => isWithdrawn(status));
  return html`<article>
<h2>${money(charge.amount, currency)}</h2>
<dl><dt>Session</dt><dd>${id}</dd></dl>
${isRefundable ? amountForm('Refund', 'refund', id, left) : ''}
${amountForm('Dispute', 'dispute', id, charge.amount)}
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
<label>Amount in the currency's minor unit <input name="amount" inputmode="numeric" value="${amount}" required></label>
<button class="plain" name="action" value="${action}">${label}</button>
</form>`;

const statusForm = (action: string, id: string, labels: Readonly<Record<string, string>>): Html =>
  html`<form method="post">
<input type="hidden" name="id" value="${id}"><input type="hidden" name="action" value="${action}">
${join(Object.entries(labels).map(([status, label]) => html`<button class="plain" name="status" value="${status}">${label}</button>`))}
</form>`;

const join = (fragments: Html[]): Html => fragments.reduce((all, next) => html`${all}${next}`, html``);

function money(minorUnits: number, currency: string): string {
  const format = new Intl.NumberFormat('en-US', { style: 'currency', currency });
  return format.format(minorUnits / 10 ** (format.resolvedOptions().maximumFractionDigits ?? 2));
}

const page = (title: string, content: Html): string =>
  renderPage(title, html`<p class="notice">Sandbox: no card is asked for and no real money moves.</p>\n${content}`);
