import type { CardAccount, lastCharges } from '../../ledger/accounts.ts';
import { counted } from '../../lib/counted.ts';
import { formatCents, formatDollars } from '../../lib/money.ts';
import type { lastPurchases } from '../../payments/top-up/purchases.ts';
import { type Html, html } from '../pages/html.ts';
import { renderPage, type Site, sellerNote } from '../pages/page.ts';

/** Asks for an id, which a form sends as `accountId`. @param problem what is wrong with the value */
export const accountField = (
  value = '',
  problem?: string,
  isRequired = false,
): Html => html`<label for="account">Account id</label>
<input class="id" id="account" name="accountId" value="${value}" maxlength="100" autocomplete="off" autocapitalize="none" spellcheck="false"${isRequired ? html` required` : ''}${
  problem === undefined ? '' : html` aria-invalid="true" aria-describedby="account-rule" autofocus`
}>${problem === undefined ? '' : html`\n<p id="account-rule" class="problem">${problem}</p>`}`;

/** @param typed an id that is unknown */
export const accountFormPage = (site: Site, typed?: string): string =>
  renderPage(
    typed === undefined ? 'Your credit account' : 'Unknown account',
    html`<form method="post" action="/account">
${accountField(typed, typed === undefined ? undefined : 'There is no account with this id. Check the id.', true)}
<button type="submit">Show the account</button>
</form>
<a class="button plain" href="/top-up">Buy credit for a new account</a>
${sellerNote(site)}`,
  );

interface AccountHistory {
  readonly charges: Awaited<ReturnType<typeof lastCharges>>;
  readonly purchases: Awaited<ReturnType<typeof lastPurchases>>;
}

export function accountPage(
  site: Site,
  { balanceMicroUsd, isFrozen }: CardAccount,
  { charges, purchases }: AccountHistory,
): string {
  const [purchase] = purchases;
  return renderPage(
    'Your credit account',
    html`${isFrozen ? html`<p class="notice">The operator has frozen this account, so its credit can't be spent now. Contact the operator.</p>` : ''}
<dl>
<dt>Balance</dt>
<dd class="amount">${formatDollars(balanceMicroUsd)}</dd>
</dl>
<a class="button" href="/top-up${purchase ? `?purchase=${purchase.id}` : ''}">Add credit</a>
<h2>Last charges</h2>
${list(
  charges.map(
    ({ at, state, amountMicroUsd, characters, traceId }) =>
      html`${time(at)}: ${characters === null ? '' : `${counted(characters, 'character')}, `}${formatDollars(amountMicroUsd)}${STATES[state]}
<small>Trace id <code>${traceId ?? 'unknown'}</code></small>`,
  ),
)}
<h2>Last purchases</h2>
${list(purchases.map(({ at, amountCents }) => html`${time(at)}: ${formatCents(amountCents)}`))}
${sellerNote(site)}`,
  );
}

const STATES = { pending: ', reserved for unfinished speech', posted: '', voided: ', not charged' } as const;

const list = (items: readonly Html[]): Html =>
  items.length === 0 ? html`<p>None yet.</p>` : html`<ul>${items.map((item) => html`<li>${item}</li>\n`)}</ul>`;

const TIME = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short', timeZone: 'UTC' });

const time = (at: Date): Html => html`<time datetime="${at.toISOString()}">${TIME.format(at)} UTC</time>`;
