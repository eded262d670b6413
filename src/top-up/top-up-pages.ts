import { formatCents, formatDollars } from '../lib/money.ts';
import { html } from '../pages/html.ts';
import { BACK, renderErrorPage, renderPage } from '../pages/page.ts';
import type { TopUpCredit } from './credit-top-up.ts';
import type { PurchaseRequest, UnpaidStage } from './purchases.ts';

/** An empty address is that of the page itself. */
const LOOK_AGAIN = html`<a class="button" href="">Look again</a>`;

export const cardPaymentOffPage = (): string =>
  renderPage(
    'Add speech credit',
    html`<p>Payment by card is not set up here, so no credit can be bought. The operator of this service can change that.</p>
<a class="button" href="/docs">See how this service is used and paid</a>`,
  );

/** There is nothing else to do on it than to come back. */
export const pausedPage = (): string =>
  renderPage(
    'Adding credit is paused',
    html`<p>The operator of this service sells no credit just now. Nothing was charged. What you have paid for before is
credited, and your credit is kept.</p>
<a class="button" href="/top-up">Try again</a>`,
  );

/** The page after a purchase: the account's bearer id is all that its owner needs to keep. */
export function creditedPage(baseUrl: string, credit: TopUpCredit, amountCents: number): string {
  return renderPage(
    credit.alreadyCredited ? 'Already credited' : 'Credit added',
    html`<p>${
      credit.alreadyCredited
        ? `This purchase of ${formatCents(amountCents)} was credited before. It is not counted twice.`
        : `${formatCents(amountCents)} was added.`
    }</p>
${debtNote(credit)}
<dl>
<dt>Balance</dt>
<dd class="amount">${formatDollars(credit.balanceMicroUsd)}</dd>
</dl>
<label for="account">Your account id</label>
<input class="id" id="account" value="${credit.accountId}" readonly>
<p><strong>Keep this id secret and safe:</strong> whoever knows it can spend the balance.</p>
<p>If you lose it, this page's address shows it again, so keep that secret too. The operator of this service can also
find it by the receipt that the card processor sent you.</p>
<p>Send it with a request:</p>
<pre>curl -o hello.mp3 "${baseUrl}/tts?text=Hello+world" -H "x-credit-account: <code>${credit.accountId}</code>"</pre>
<a class="button" href="/top-up?account=${credit.accountId}">Add more credit to this account</a>`,
  );
}

/** What a refund or dispute of an earlier purchase has to do with the balance (R61). */
function debtNote({ debtPaidMicroUsd, debtMicroUsd }: TopUpCredit) {
  if (debtPaidMicroUsd === 0n && debtMicroUsd === 0n) return '';
  const paid = debtPaidMicroUsd > 0n ? `${formatDollars(debtPaidMicroUsd)} of it paid for that. ` : '';
  const owed =
    debtMicroUsd > 0n
      ? `${formatDollars(debtMicroUsd)} is still owed: nothing can be spent until a further purchase has paid it.`
      : 'Nothing is owed any more.';
  return html`<p>An earlier purchase was refunded or disputed after its credit had been spent. ${paid}${owed}</p>`;
}

export const tooManyPage = (retryAfterSeconds: number): string =>
  renderErrorPage(
    `Too many purchases were begun from your address. Nothing was charged; try again in ${retryAfterSeconds} ${
      retryAfterSeconds === 1 ? 'second' : 'seconds'
    }.`,
  );

const UNPAID: Readonly<Record<UnpaidStage, { readonly title: string; readonly text: string }>> = {
  open: {
    title: 'Not paid yet',
    text: 'The checkout has not been paid, so nothing was credited. If you have just paid, look again in a moment.',
  },
  on_its_way: {
    title: 'Your bank is still processing the payment',
    text: `Do not pay again. The credit is added by itself when the money arrives, which can take some days. Keep the address
of this page: it shows your account then.`,
  },
  refused: {
    title: 'Not paid',
    text: 'Your bank did not make this payment, so nothing was credited. You can pay again.',
  },
  expired: {
    title: 'This checkout has expired',
    text: 'The checkout has expired. Nothing was charged or credited.',
  },
};

export function unpaidPage(stage: UnpaidStage, { amountCents, accountId, challengeId }: PurchaseRequest): string {
  const { title, text } = UNPAID[stage];
  const again = new URLSearchParams({
    amount: String(amountCents),
    ...(accountId !== undefined && { account: accountId }),
    ...(challengeId !== undefined && { challenge: challengeId }),
  });
  const mayStillBePaid = stage === 'open' || stage === 'on_its_way';
  return renderPage(
    title,
    html`<p>${text}</p>
${mayStillBePaid ? LOOK_AGAIN : ''}
${stage === 'on_its_way' ? '' : html`<a class="button${mayStillBePaid ? ' plain' : ''}" href="/top-up?${String(again)}">Start again</a>`}`,
  );
}

export const foreignSessionPage = (): string =>
  renderPage(
    'Unknown purchase',
    html`<p>This checkout session is unknown, or was not opened by this service. Nothing was credited.</p>
<a class="button" href="/top-up">Start a purchase</a>`,
  );

/** @param cause why the purchase could not be looked at, as the page's heading */
export const notNowPage = (cause: string): string =>
  renderPage(
    cause,
    html`<p>Your purchase could not be checked just now. Nothing is lost: reload this page in a moment and it is credited
then.</p>
${LOOK_AGAIN}
${BACK}`,
  );
