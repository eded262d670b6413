import { createHash } from 'node:crypto';
import { type Html, html, raw } from '../../pages/html.ts';
import { type Session, successUrlOf, totalOf } from './session.ts';

const STYLE = `
:root { color-scheme: light dark; --ink: #1b1f3b; --paper: #eef0f7; --card: #fff; --line: #d3d7e6; --pay: #4338ca; --pay-ink: #fff; --muted: #565d7a; --warn: #9f1239; --note: #fef3c7; --note-ink: #713f12; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf4; --paper: #10131f; --card: #191d2d; --line: #343a54; --pay: #a5b4fc; --pay-ink: #14172b; --muted: #a6adc8; --warn: #fda4af; --note: #3f3210; --note-ink: #fde68a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
.sandbox { margin: 0; padding: .6rem 1rem; background: var(--note); color: var(--note-ink); text-align: center; font-size: .9rem; }
main { width: calc(100% - 2rem); max-width: 26rem; margin: 1.5rem auto; padding: 1.5rem; background: var(--card); border: 1px solid var(--line); border-radius: 1rem; }
h1 { margin: 0; font-size: 1.1rem; }
.amount { margin: .25rem 0 1rem; font-size: 2.25rem; font-weight: 700; line-height: 1.2; }
article { margin: 0 0 1.5rem; padding: 0 0 1.5rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
label { display: block; margin-top: .75rem; }
input { width: 100%; min-height: 3rem; padding: .5rem .75rem; border: 1px solid var(--muted); border-radius: .6rem; background: transparent; color: inherit; font: inherit; }
ul { margin: 0 0 1.25rem; padding: .75rem 0; list-style: none; border-block: 1px solid var(--line); }
li { display: flex; justify-content: space-between; gap: 1rem; overflow-wrap: anywhere; }
li span:last-child { white-space: nowrap; }
.declined { margin: 0 0 1rem; padding: .75rem; border: 1px solid var(--warn); border-radius: .5rem; color: var(--warn); }
button, .button { display: block; width: 100%; min-height: 3rem; margin-top: .75rem; padding: .75rem 1rem; border: 1px solid var(--pay); border-radius: .6rem; background: var(--pay); color: var(--pay-ink); font: inherit; font-weight: 600; text-align: center; text-decoration: none; cursor: pointer; }
button.plain { background: transparent; color: var(--ink); border-color: var(--muted); }
.back { display: block; margin-top: 1.25rem; padding: .75rem; color: var(--muted); text-align: center; }
:focus-visible { outline: 3px solid var(--pay); outline-offset: 2px; }
`;

const STYLE_HASH = createHash('sha256').update(STYLE).digest('base64');

/**
 * Headers of the payment page. Chromium applies form-action to the redirect that answers a form too, so the merchant's
 * origin is named beside 'self' (R19).
 */
export function pageHeaders(merchantOrigin?: string): Record<string, string> {
  const policy = [
    "default-src 'none'",
    `style-src 'sha256-${STYLE_HASH}'`,
    `form-action 'self'${merchantOrigin ? ` ${merchantOrigin}` : ''}`,
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ];
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policy.join('; '),
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  };
}

/** The page of an open session, with two forms that post to its own address. */
export function paymentPage(session: Session, merchant: string, declined: boolean): string {
  const amount = money(totalOf(session), session.currency);
  return page(
    `Pay ${merchant}`,
    html`<h1>Pay ${merchant}</h1>
<p class="amount">${amount}</p>
${declined ? html`<p class="declined" role="alert">The card was declined. Nothing was paid; you can try again.</p>` : ''}
<ul>${join(session.lineItems.map((item) => lineItem(item, session.currency)))}</ul>
<form method="post"><label for="email">Email, for the receipt (optional)</label>
<input id="email" name="email" type="email" maxlength="254" autocomplete="email"><button name="card" value="accepted">${declined ? 'Try again: pay' : 'Pay'} ${amount}</button>
<button class="plain" name="card" value="bank">Pay from a bank account, which takes days</button></form>
<form method="post"><button class="plain" name="card" value="declined">Decline the card</button></form>
${back(session, merchant)}`,
  );
}

const COMPLETED: Partial<Record<Session['state'], { readonly title: string; readonly text: string }>> & {
  readonly paid: { readonly title: string; readonly text: string };
} = {
  paid: { title: 'Already paid', text: 'is complete. Nothing more will be charged.' },
  on_its_way: { title: 'On its way', text: 'is being made by your bank. You have nothing more to do.' },
  refused: { title: 'Not paid', text: 'was refused by your bank. Nothing was charged.' },
};

/** The page of a session that is complete. */
export function paidPage(session: Session, merchant: string): string {
  const { title, text } = COMPLETED[session.state] ?? COMPLETED.paid;
  return page(
    title,
    html`<h1>${title}</h1>
<p class="amount">${money(totalOf(session), session.currency)}</p>
<p>This payment to ${merchant} ${text}</p>
<a class="button" href="${successUrlOf(session).href}">Continue to ${merchant}</a>`,
  );
}

export function expiredPage(session: Session, merchant: string): string {
  return page(
    'This payment has expired',
    html`<h1>This payment has expired</h1>
<p>Nothing was paid. Start again at ${merchant}.</p>
${back(session, merchant)}`,
  );
}

export function messagePage(title: string, message: string): string {
  return page(title, html`<h1>${title}</h1>\n<p>${message}</p>`);
}

/** For what was sent to a page's own address, to which an empty one leads. */
export function refusedPage(message: string, wayBack = 'Back to the payment'): string {
  const title = 'That did not work';
  return page(title, html`<h1>${title}</h1>\n<p>${message}</p>\n<a class="back" href="">${wayBack}</a>`);
}

function lineItem(item: Session['lineItems'][number], currency: string): Html {
  const count = item.quantity > 1 ? ` × ${item.quantity}` : '';
  return html`<li><span>${item.name}${count}</span> <span>${money(item.unitAmount * item.quantity, currency)}</span></li>`;
}

const back = (session: Session, merchant: string): Html =>
  session.cancelUrl ? html`<a class="back" href="${session.cancelUrl}">Go back to ${merchant}</a>` : html``;

export const join = (fragments: Html[]): Html => fragments.reduce((all, next) => html`${all}${next}`, html``);

export function money(minorUnits: number, currency: string): string {
  const format = new Intl.NumberFormat('en-US', { style: 'currency', currency });
  return format.format(minorUnits / 10 ** (format.resolvedOptions().maximumFractionDigits ?? 2));
}

export function page(title: string, content: Html): string {
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<style>${raw(STYLE)}</style>
</head>
<body>
<header class="sandbox">Sandbox: no card is asked for and no real money moves.</header>
<main>
${content}
</main>
</body>
</html>
`);
}
