import { formatCents } from '../lib/money.ts';
import { type Html, html } from '../pages/html.ts';
import { renderPage } from '../pages/page.ts';
import { MIN_TOP_UP_CENTS, OWN_AMOUNT } from './amount.ts';

const CHOICES = [500, 1000, 2000, 5000];

/** What the buyer is asked to pay, and for whom. */
export interface AskedPurchase {
  readonly amountCents: number;
  /** Undefined for a new account. */
  readonly account: string | undefined;
  readonly challenge: string | undefined;
}

export interface LauncherOptions {
  readonly serviceName: string;
  readonly maxCents: number;
  /** The buyer has left the checkout without paying. */
  readonly isCanceled?: boolean;
  /** An own amount that can not be bought: it is asked for again, in the place of the purchase's amount. */
  readonly refused?: { readonly typed: string; readonly message: string };
}

/** The page where the amount is chosen, before anything is paid. */
export function launcherPage(purchase: AskedPurchase, options: LauncherOptions): string {
  const { account, challenge } = purchase;
  return renderPage(
    'Add speech credit',
    html`${options.isCanceled ? html`<p class="notice" role="status">You left the checkout. Nothing was charged.</p>\n` : ''}<p>You
are about to add prepaid credit to ${options.serviceName}. You pay on the card processor's own page; card details never
reach this service.</p>
<form method="post" action="/top-up">
${amountChoice(purchase, options)}
<dl>
<dt>Account</dt>
<dd>${account ?? 'A new account, made once you have paid'}</dd>
</dl>
${hidden('accountId', account)}${hidden('challengeId', challenge)}<button type="submit">Pay by card</button>
</form>
<p class="hint">Nothing is charged before you confirm on the next page. The credit pays for speech by the character.</p>
${account === undefined ? html`<details><summary>I have an account already</summary>${accountForm(purchase)}</details>` : ''}`,
  );
}

/** The page for an account that does not exist: nothing can be bought on it, only be asked for again. */
export function unknownAccountPage(purchase: AskedPurchase): string {
  const { amountCents, challenge } = purchase;
  const anew = new URLSearchParams({ amount: String(amountCents), ...(challenge !== undefined && { challenge }) });
  return renderPage(
    'Unknown account',
    html`<p class="notice">There is no account with this id, so nothing can be added to it. Nothing was charged.</p>
${accountForm(purchase)}
<a class="button plain" href="/top-up?${String(anew)}">Buy for a new account</a>`,
  );
}

function amountChoice({ amountCents }: AskedPurchase, { maxCents, refused }: LauncherOptions): Html {
  const chosen = refused ? undefined : amountCents;
  const amounts = [...new Set(chosen === undefined ? CHOICES : [...CHOICES, chosen])]
    .filter((cents) => cents <= maxCents)
    .sort((one, other) => one - other);
  const choices = amounts.map((cents) => choice(String(cents), formatCents(cents), cents === chosen));
  const own =
    maxCents > MIN_TOP_UP_CENTS || refused
      ? html`${choice(OWN_AMOUNT, 'Another amount', chosen === undefined)}${ownAmount(maxCents, refused)}`
      : '';
  return html`<fieldset>
<legend>You pay, and get as credit</legend>
${choices.reduce((all, next) => html`${all}${next}`, html``)}${own}</fieldset>`;
}

const choice = (value: string, label: string, isChosen: boolean): Html =>
  html`<label class="choice"><input type="radio" name="amount" value="${value}"${isChosen ? html` checked` : ''}> <span>${label}</span></label>
`;

/** The stylesheet shows it only while an own amount is chosen. */
function ownAmount(maxCents: number, refused: LauncherOptions['refused']): Html {
  return html`<div class="own">
<label for="own-amount">Amount in US dollars</label>
<input id="own-amount" name="ownAmount" value="${refused?.typed ?? ''}" inputmode="decimal" autocomplete="off" maxlength="100" aria-describedby="own-amount-rule"${refused ? html` aria-invalid="true" autofocus` : ''}>
<p id="own-amount-rule"${refused ? html` class="problem"` : html` class="hint"`}>${
    refused?.message ?? `From ${formatCents(MIN_TOP_UP_CENTS)} to ${formatCents(maxCents)}, such as 12.50.`
  }</p>
</div>
`;
}

const accountForm = ({ amountCents, account, challenge }: AskedPurchase): Html =>
  html`<form method="get" action="/top-up">
<label for="account">Account id</label>
<input class="id" id="account" name="account" value="${account ?? ''}" maxlength="100" autocomplete="off" autocapitalize="none" spellcheck="false">
${hidden('amount', String(amountCents))}${hidden('challenge', challenge)}<button type="submit"${account === undefined ? html` class="plain"` : ''}>Use this account</button>
</form>`;

const hidden = (name: string, value: string | undefined): Html =>
  value === undefined ? html`` : html`<input type="hidden" name="${name}" value="${value}">\n`;
