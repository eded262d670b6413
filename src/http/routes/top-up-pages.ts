import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import { formatCents, formatDollars } from '../../lib/money.ts';
import { OWN_AMOUNT } from '../../payments/top-up/amount.ts';
import type { TopUpCredit } from '../../payments/top-up/credit-top-up.ts';
import type { PurchaseRequest, UnpaidStage } from '../../payments/top-up/purchases.ts';
import { type Html, html } from '../pages/html.ts';
import { BACK, renderErrorPage, renderPage } from '../pages/page.ts';

const CHOICES = [500, 1000, 2000, 5000];

interface LauncherRequest {
  readonly amountCents: number;
  readonly account: string | undefined;
  readonly challenge: string | undefined;
}

interface LauncherOptions {
  readonly serviceName: string;
  readonly maxCents: number;
  readonly isCanceled?: boolean;
  readonly refused?: { readonly typed: string; readonly message: string };
}

export function launcherPage(purchase: LauncherRequest, options: LauncherOptions): string {
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

const REFUSED_ACCOUNT = {
  unknown_account: {
    title: 'Unknown account',
    text: 'There is no account with this id, so nothing can be added to it. Nothing was charged.',
  },
  frozen_account: {
    title: 'Frozen account',
    text: 'The operator has frozen this account, so its credit could not be spent. Contact the operator. Nothing was charged.',
  },
};

export function refusedAccountPage(purchase: LauncherRequest, reason: keyof typeof REFUSED_ACCOUNT): string {
  const { amountCents, challenge } = purchase;
  const anew = new URLSearchParams({ amount: String(amountCents), ...(challenge !== undefined && { challenge }) });
  const { title, text } = REFUSED_ACCOUNT[reason];
  return renderPage(
    title,
    html`<p class="notice">${text}</p>
${accountForm(purchase)}
<a class="button plain" href="/top-up?${String(anew)}">Buy for a new account</a>`,
  );
}

function amountChoice({ amountCents }: LauncherRequest, { maxCents, refused }: LauncherOptions): Html {
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

const accountForm = ({ amountCents, account, challenge }: LauncherRequest): Html =>
  html`<form method="get" action="/top-up">
<label for="account">Account id</label>
<input class="id" id="account" name="account" value="${account ?? ''}" maxlength="100" autocomplete="off" autocapitalize="none" spellcheck="false">
${hidden('amount', String(amountCents))}${hidden('challenge', challenge)}<button type="submit"${account === undefined ? html` class="plain"` : ''}>Use this account</button>
</form>`;

const hidden = (name: string, value: string | undefined): Html =>
  value === undefined ? html`` : html`<input type="hidden" name="${name}" value="${value}">\n`;

const LOOK_AGAIN = html`<a class="button" href="">Look again</a>`;

export const cardPaymentOffPage = (): string =>
  renderPage(
    'Add speech credit',
    html`<p>Payment by card is not set up here, so no credit can be bought. The operator of this service can change that.</p>
<a class="button" href="/docs">See how this service is used and paid</a>`,
  );

export const pausedPage = (): string =>
  renderPage(
    'Adding credit is paused',
    html`<p>The operator has paused purchases. You were not charged. Earlier payments are still credited.</p>
<a class="button" href="/top-up">Try again</a>`,
  );

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

/** Explains how a refund or dispute of an earlier purchase changed the balance (R61). */
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
    `Too many purchases were started from your IP address. You were not charged. Try again in ${retryAfterSeconds} ${
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
    text: `Do not pay again. The credit is added automatically when the money arrives, which can take some days. Keep this page's
URL; it will show your account id.`,
  },
  refused: {
    title: 'Not paid',
    text: 'Your bank declined the payment. Nothing was credited. You can pay again.',
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

export const notNowPage = (cause: string): string =>
  renderPage(
    cause,
    html`<p>Your purchase could not be checked just now. Nothing is lost: reload this page in a moment and it is credited
then.</p>
${LOOK_AGAIN}
${BACK}`,
  );
