import type { FastifyInstance, FastifyReply } from 'fastify';
import { type Html, html } from '../../http/pages/html.ts';
import { ApiError } from './api-error.ts';
import type { PaymentIntent, Session } from './objects.ts';
import { join, messagePage, money, page, showErrors, withPageHeaders } from './page.ts';
import { current, payPath, paySession } from './sessions.ts';
import type { Store } from './store.ts';

const MERCHANT = 'Speechgate';
const MAX_EMAIL_LENGTH = 254;

interface ById {
  readonly Params: { readonly id: string };
}

export function servePaymentPage(app: FastifyInstance, store: Store): void {
  showErrors(app, 'Back to the payment');
  const sessionOf = (id: string): Session | undefined => {
    const session = store.find('checkout.session', id);
    return session && current(session);
  };
  const show = (reply: FastifyReply, session: Session | undefined, isDeclined = false) => {
    if (!session) {
      const message = 'This payment does not exist. Start again at the service. Nothing was paid.';
      return withPageHeaders(reply.code(404)).send(messagePage('No such payment', message));
    }
    const intent = store.find('payment_intent', session.payment_intent ?? '');
    reply.code(session.status === 'expired' ? 410 : 200);
    return withPageHeaders(reply, successUrlOf(session).origin).send(sessionPage(session, intent, isDeclined));
  };
  app.setNotFoundHandler((_request, reply) => show(reply, undefined));

  app.get<ById>(payPath(':id'), async (request, reply) => show(reply, sessionOf(request.params.id)));

  app.post<ById>(payPath(':id'), async (request, reply) => {
    const session = sessionOf(request.params.id);
    const form = new URLSearchParams(String(request.body ?? ''));
    const card = form.get('card');
    const email = form.get('email')?.trim().slice(0, MAX_EMAIL_LENGTH) || undefined;
    if (!session || session.status === 'expired' || card === 'declined') return show(reply, session, true);
    if (card !== 'accepted' && card !== 'bank')
      throw new ApiError(
        400,
        'The form was sent without one of its buttons. Go back and press a button. Nothing was paid.',
      );
    if (session.status === 'open') store.save(...paySession(session, card === 'bank' ? 'bank' : 'card', email));
    const { href, origin } = successUrlOf(session);
    return withPageHeaders(reply, origin).redirect(href, 303);
  });
}

const successUrlOf = ({ success_url, id }: Session): URL =>
  new URL(success_url.replaceAll('{CHECKOUT_SESSION_ID}', id));

function sessionPage(session: Session, intent: PaymentIntent | undefined, isDeclined: boolean): string {
  if (session.status === 'open') return openPage(session, isDeclined);
  if (session.status === 'complete') return paidPage(session, intent);
  return page('This payment has expired', html`<p>Nothing was paid. Start again at ${MERCHANT}.</p>\n${back(session)}`);
}

function openPage(session: Session, isDeclined: boolean): string {
  const amount = money(session.amount_total, session.currency);
  const items = session.line_items.data.map(
    ({ description }) => html`<li><span>${description}</span> <span>${amount}</span></li>`,
  );
  return page(
    `Pay ${MERCHANT}`,
    html`<dl><dt>Amount</dt><dd class="amount">${amount}</dd></dl>
${isDeclined ? html`<p class="problem" role="alert">The card was declined. Nothing was paid; you can try again.</p>` : ''}
<ul>${join(items)}</ul>
<form method="post"><label for="email">Email, for the receipt (optional)</label>
<input id="email" name="email" type="email" maxlength="254" autocomplete="email"><button name="card" value="accepted">${isDeclined ? 'Try again: pay' : 'Pay'} ${amount}</button>
<button class="plain" name="card" value="bank">Pay from a bank account, which takes days</button></form>
<form method="post"><button class="plain" name="card" value="declined">Decline the card</button></form>
${back(session)}`,
  );
}

function paidPage(session: Session, intent: PaymentIntent | undefined): string {
  const [title, text] =
    intent?.status === 'processing'
      ? ['On its way', 'is being made by your bank. You have nothing more to do.']
      : intent?.status === 'requires_payment_method'
        ? ['Not paid', 'was refused by your bank. Nothing was charged.']
        : ['Already paid', 'is complete. Nothing more will be charged.'];
  return page(
    title,
    html`<dl><dt>Amount</dt><dd class="amount">${money(session.amount_total, session.currency)}</dd></dl>
<p>This payment to ${MERCHANT} ${text}</p>
<a class="button" href="${successUrlOf(session).href}">Continue to ${MERCHANT}</a>`,
  );
}

const back = ({ cancel_url }: Session): Html =>
  cancel_url ? html`<a class="button plain" href="${cancel_url}">Go back to ${MERCHANT}</a>` : html``;
