import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import { counted } from '../../lib/counted.ts';
import { formatCents, formatDollars, MICRO_USD_PER_CENT } from '../../lib/money.ts';
import { OWN_AMOUNT } from '../../payments/top-up/amount.ts';
import type { TopUpCredit } from '../../payments/top-up/credit-top-up.ts';
import type { UnpaidStage } from '../../payments/top-up/purchases.ts';
import { type Html, html } from '../pages/html.ts';
import { BACK, renderErrorPage, renderPage, type Site, sellerNote } from '../pages/page.ts';
import { accountField } from './account-pages.ts';

const CHOICES = [500, 1000, 2000, 5000];

interface LauncherRequest {
  readonly amountCents: number;
  readonly account: string | undefined;
  readonly challenge: string | undefined;
  /** An earlier purchase, whose account it is. */
  readonly purchase: string | undefined;
}

interface Launcher {
  readonly site: Site;
  readonly maxCents: number;
  /** Of the default model, 10^-12 USD per character. */
  readonly ratePicoUsd: bigint;
}

interface LauncherState {
  readonly isCanceled?: boolean;
  /** Why another amount than the one of the URL is chosen. */
  readonly amountNote?: string | undefined;
  readonly refusedAmount?: { readonly typed: string; readonly message: string };
  readonly refusedAccount?: RefusedAccount | undefined;
}

export type RefusedAccount = 'unknown_account' | 'frozen_account';

const REFUSED_ACCOUNT: Readonly<Record<RefusedAccount, { readonly title: string; readonly text: string }>> = {
  unknown_account: {
    title: 'Unknown account',
    text: 'There is no account with this id, so nothing can be added to it. Nothing was charged.',
  },
  frozen_account: {
    title: 'Frozen account',
    text: 'The operator has frozen this account, so its credit could not be spent. Contact the operator. Nothing was charged.',
  },
};

export function launcherPage(launcher: Launcher, request: LauncherRequest, state: LauncherState): string {
  const { isCanceled, amountNote, refusedAccount } = state;
  const note = isCanceled ? 'You left the checkout. Without a payment there, nothing is charged.' : amountNote;
  return renderPage(
    refusedAccount ? REFUSED_ACCOUNT[refusedAccount].title : 'Add speech credit',
    html`${note === undefined ? '' : html`<p class="notice" role="status">${note}</p>\n`}<p>You
are about to add prepaid credit to ${launcher.site.serviceName}. You pay on the card processor's own page; card details never
reach this service.</p>
<form method="post" action="/top-up">
${amountChoice(launcher, request, state)}
${accountChoice(request, refusedAccount)}
${hidden('challengeId', request.challenge)}<button type="submit">Continue to payment${amountsOfButton(launcher, request, state)}</button>
</form>
<p class="hint">Nothing is charged before you confirm on the next page. The credit pays for speech by the character.${
      launcher.site.contact ? ' You can ask the seller to refund credit that you have not spent.' : ''
    }</p>
<a class="button plain" href="/account">Balance and charges of an account</a>
${sellerNote(launcher.site)}`,
  );
}

function accountChoice({ account, purchase }: LauncherRequest, refused: LauncherState['refusedAccount']): Html {
  if (refused) {
    return html`${accountField(account, REFUSED_ACCOUNT[refused].text)}
<p class="hint">Enter the id of another account, or leave the field empty to buy for a new account.</p>`;
  }
  if (account !== undefined) return accountShown(html`${account}${hidden('accountId', account)}`);
  if (purchase !== undefined)
    return accountShown(html`The account of your earlier purchase${hidden('purchaseId', purchase)}`);
  return html`${accountShown(html`New account (created after payment)`)}
<details><summary>I have an account already</summary>
${accountField()}
</details>`;
}

const accountShown = (account: Html): Html => html`<dl>
<dt>Account</dt>
<dd>${account}</dd>
</dl>`;

function amountsOf({ maxCents }: Launcher, { amountCents }: LauncherRequest, { refusedAmount }: LauncherState) {
  const amounts = refusedAmount ? CHOICES : [...CHOICES, amountCents];
  return [...new Set(amounts)].filter((cents) => cents <= maxCents).sort((one, other) => one - other);
}

function amountChoice(launcher: Launcher, request: LauncherRequest, state: LauncherState): Html {
  const { maxCents, ratePicoUsd } = launcher;
  const { refusedAmount } = state;
  const chosen = refusedAmount ? undefined : request.amountCents;
  const choices = amountsOf(launcher, request, state).map((cents) =>
    choice(String(cents), formatCents(cents), cents === chosen, html` <small>${speechFor(cents, ratePicoUsd)}</small>`),
  );
  const own =
    maxCents > MIN_TOP_UP_CENTS || refusedAmount
      ? html`${choice(OWN_AMOUNT, 'Another amount', chosen === undefined)}${ownAmount(maxCents, refusedAmount)}`
      : '';
  return html`<fieldset>
<legend>You pay, and get as credit</legend>
${choices}${own}</fieldset>`;
}

/** The stylesheet shows the one of the chosen amount. */
const amountsOfButton = (launcher: Launcher, request: LauncherRequest, state: LauncherState): Html[] =>
  amountsOf(launcher, request, state).map((cents) => html`<span class="chosen">, ${formatCents(cents)}</span>`);

const choice = (value: string, label: string, isChosen: boolean, hint = html``): Html =>
  html`<label class="choice"><input type="radio" name="amount" value="${value}"${isChosen ? html` checked` : ''}> <span>${label}</span>${hint}</label>
`;

const CHARACTERS_PER_SECOND = 15;
const rounded = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 3 });

/** What an amount buys of the default model, at the speed at which English is mostly read aloud. */
function speechFor(cents: number, ratePicoUsd: bigint): string {
  const characters = Number((BigInt(cents) * MICRO_USD_PER_CENT * 1_000_000n) / ratePicoUsd);
  const minutes = Math.round(characters / CHARACTERS_PER_SECOND / 60);
  const time = minutes < 120 ? counted(minutes, 'minute') : `${rounded.format(Math.round(minutes / 60))} hours`;
  return `about ${rounded.format(characters)} characters, ${time}`;
}

function ownAmount(maxCents: number, refused: LauncherState['refusedAmount']): Html {
  return html`<div class="own">
<label for="own-amount">Amount in US dollars</label>
<input id="own-amount" name="ownAmount" value="${refused?.typed ?? ''}" inputmode="decimal" autocomplete="off" maxlength="100" aria-describedby="own-amount-rule"${refused ? html` aria-invalid="true" autofocus` : ''}>
<p id="own-amount-rule"${refused ? html` class="problem"` : html` class="hint"`}>${
    refused?.message ?? `From ${formatCents(MIN_TOP_UP_CENTS)} to ${formatCents(maxCents)}, such as 12.50.`
  }</p>
</div>
`;
}

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

export function creditedPage(
  { site, baseUrl }: { readonly site: Site; readonly baseUrl: string },
  credit: TopUpCredit,
  { amountCents, id }: { readonly amountCents: number; readonly id: string },
): string {
  return renderPage(
    'Credit added',
    html`<p>${formatCents(amountCents)} was ${credit.wasCredited ? 'already added. Opening this page again adds nothing' : 'added'}.</p>
${debtNote(credit)}
<dl>
<dt>Balance</dt>
<dd class="amount">${formatDollars(credit.balanceMicroUsd)}</dd>
</dl>
<label for="account">Your account id</label>
<input class="id" id="account" value="${credit.accountId}" readonly>
<a class="button plain" download="speech-credit-account.txt" href="data:text/plain,${credit.accountId}">Download this id</a>
<p><strong>Keep this id secret and safe:</strong> whoever knows it can spend the balance.</p>
<p>If you lose it, this page's address shows it again, so keep that secret too. The operator of this service can also
find it by the receipt that the card processor sent you.</p>
<p>Send it with a request:</p>
<pre>curl -f -o hello.mp3 "${baseUrl}/tts?text=Hello+world" -H "x-credit-account: <code>${credit.accountId}</code>"</pre>
<a class="button" href="/top-up?purchase=${id}">Add more credit to this account</a>
<form method="post" action="/account">
${hidden('accountId', credit.accountId)}<button type="submit" class="plain">See its charges</button>
</form>
<a class="button plain" href="/">Hear a voice on the start page</a>
${sellerNote(site)}`,
  );
}

/** Explains how a refund or dispute of an earlier purchase changed the balance (R61). */
function debtNote({ debtPaidMicroUsd, debtMicroUsd }: TopUpCredit) {
  if (debtPaidMicroUsd === 0n && debtMicroUsd === 0n) return '';
  const paid = debtPaidMicroUsd > 0n ? `${formatDollars(debtPaidMicroUsd)} of your payment paid this debt. ` : '';
  const owed =
    debtMicroUsd > 0n
      ? `${formatDollars(debtMicroUsd)} is still owed: you can spend nothing until a further purchase pays it.`
      : 'Nothing is owed any more.';
  return html`<p>An earlier purchase was refunded or disputed after its credit was spent, which left a debt. ${paid}${owed}</p>`;
}

export const tooManyPage = (retryAfterSeconds: number): string =>
  renderErrorPage(
    `Too many purchases were started from your IP address. You were not charged. Try again in ${counted(retryAfterSeconds, 'second')}.`,
  );

const UNPAID: Readonly<Record<UnpaidStage, { readonly title: string; readonly text: string }>> = {
  open: {
    title: 'Not paid yet',
    text: 'The checkout has not been paid, so nothing was credited. If you have just paid, look again in a moment.',
  },
  on_its_way: {
    title: 'The payment is still being processed',
    text: `Do not pay again. The credit is added automatically when the money arrives, which can take some days. Keep this page's
URL; it will show your account id.`,
  },
  refused: {
    title: 'Not paid',
    text: 'The payment failed or was canceled. Nothing was credited. You can pay again.',
  },
  expired: {
    title: 'This checkout has expired',
    text: 'The checkout has expired. Nothing was charged or credited.',
  },
};

export function unpaidPage(stage: UnpaidStage, purchaseId: string): string {
  const { title, text } = UNPAID[stage];
  const mayStillBePaid = stage === 'open' || stage === 'on_its_way';
  return renderPage(
    title,
    html`<p>${text}</p>
${mayStillBePaid ? LOOK_AGAIN : ''}
${stage === 'on_its_way' ? '' : html`<a class="button${mayStillBePaid ? ' plain' : ''}" href="/top-up?purchase=${purchaseId}">Start again</a>`}`,
  );
}

export const foreignSessionPage = (): string =>
  renderPage(
    'Unknown purchase',
    html`<p>This checkout session is unknown, or was not opened by this service. Nothing was credited. If you
have paid, open the link that the checkout showed after payment, or ask the operator.</p>
<a class="button" href="/top-up">Start a purchase</a>`,
  );

export const notNowPage = (cause: string): string =>
  renderPage(
    cause,
    html`<p>Your purchase can't be checked now. Do not pay again: if you have paid, it is credited automatically, or when you
reload this page.</p>
${LOOK_AGAIN}
${BACK}`,
  );
