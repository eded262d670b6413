import { html } from '../http/html.ts';
import { renderPage } from '../http/page.ts';
import type { TopUpCredit } from '../ledger/credit-top-up.ts';
import { formatCents, formatUsd } from '../money.ts';

export interface LauncherFields {
  readonly amountCents: number;
  readonly account: string | undefined;
  readonly challenge: string | undefined;
}

/** The page that shows what will be paid, before anything is. */
export function launcherPage(serviceName: string, { amountCents, account, challenge }: LauncherFields): string {
  return renderPage(
    'Add speech credit',
    html`<p>You are about to add prepaid credit to ${serviceName}. You pay on the card processor's own page; card details
never reach this service.</p>
<dl>
<dt>You pay, and get as credit</dt>
<dd class="amount">${formatCents(amountCents)} USD</dd>
<dt>Account</dt>
<dd>${account ?? 'A new account, made once you have paid'}</dd>
</dl>
<form method="post" action="/top-up">
<input type="hidden" name="amount" value="${amountCents}">
${account === undefined ? '' : html`<input type="hidden" name="accountId" value="${account}">`}
${challenge === undefined ? '' : html`<input type="hidden" name="challengeId" value="${challenge}">`}
<button type="submit">Pay ${formatCents(amountCents)} USD by card</button>
</form>
<p class="hint">Nothing is charged before you confirm on the next page. The credit pays for speech by the character.</p>`,
  );
}

export const cardPaymentOffPage = (): string =>
  renderPage(
    'Add speech credit',
    html`<p>Payment by card is not set up here, so no credit can be bought. The operator of this service can change that.</p>`,
  );

/** The page after a purchase: the account's bearer id is all that its owner needs to keep. */
export function creditedPage(baseUrl: string, credit: TopUpCredit, amountCents: number): string {
  const command = `curl -o hello.mp3 "${baseUrl}/tts?text=Hello+world" -H "x-credit-account: ${credit.accountId}"`;
  return renderPage(
    credit.alreadyCredited ? 'Already credited' : 'Credit added',
    html`<p>${
      credit.alreadyCredited
        ? 'This purchase was credited before. It is not counted twice.'
        : `${formatCents(amountCents)} USD have been added.`
    }</p>
<dl>
<dt>Balance</dt>
<dd class="amount">${formatUsd(credit.balanceMicroUsd)} USD</dd>
<dt>Your account id</dt>
<dd><code>${credit.accountId}</code></dd>
</dl>
<p><strong>Keep this id secret and safe.</strong> Whoever knows it can spend the balance, and nobody can recover it for you.</p>
<p>Send it with a request:</p>
<pre>${command}</pre>`,
  );
}

export const unpaidPage = (): string =>
  renderPage(
    'Not paid yet',
    html`<p>The checkout has not been paid, so nothing was credited. If you have just paid, reload this page in a
moment.</p>
<p><a class="button" href="/top-up">Start again</a></p>`,
  );

export const foreignSessionPage = (): string =>
  renderPage(
    'Unknown purchase',
    html`<p>This checkout session is unknown, or was not opened by this service. Nothing was credited.</p>
<p><a class="button" href="/top-up">Start a purchase</a></p>`,
  );

/** @param cause why the purchase could not be looked at, as the page's heading */
export const notNowPage = (cause: string): string =>
  renderPage(
    cause,
    html`<p>Your purchase could not be checked just now. Nothing is lost: reload this page in a moment and it is credited
then.</p>`,
  );
