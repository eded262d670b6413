import { formatCents, formatUsd, MICRO_USD_PER_CENT } from '../../lib/money.ts';
import { MIN_TOP_UP_CENTS } from '../../top-up/amount.ts';
import { printable } from '../printable.ts';
import { UsageError } from '../usage-error.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { creditedAccount, openCreditPurchase, waitForCredit } from './credit-purchase.ts';
import { type Caller, openCaller } from './open-caller.ts';
import { openInBrowser } from './open-in-browser.ts';
import type { Output } from './output.ts';
import { withProgress } from './progress.ts';
import { shownAccount } from './shown-account.ts';
import { dropTopUp, readConfig, type StoredTopUp, storeAccount, storeTopUp } from './stored-settings.ts';
import { readUsd } from './usd.ts';

const PATIENCE_MS = 30 * 60_000;
/** The card processor closes the page of a purchase after a day. */
const OPEN_MS = 23 * 3_600_000;
/** What is not paid by then never will be. */
const CLOSED_MS = 25 * 3_600_000;

/** `speechgate top-up` */
await runCommand({
  usage: `speechgate top-up [--amount USD] [--open]
Buys credit by card: tells where it is paid, waits until it is credited, and keeps the account. After Ctrl-C nothing is
lost: the same command goes on where it was.

  --amount USD     at least ${formatUsd(BigInt(MIN_TOP_UP_CENTS) * MICRO_USD_PER_CENT).slice(0, -4)}, which it is otherwise too
  --open           opens the page in a browser
  --no-wait        tells where it is paid, and ends; the next top-up sees whether it was`,
  example: 'speechgate top-up --amount 5 --open',
  options: {
    ...COMMON_OPTIONS,
    amount: { type: 'string' },
    open: { type: 'boolean', default: false },
    'no-wait': { type: 'boolean', default: false },
  },
  maxWords: 0,
  run: async (values, _words, output) => {
    const amountCents = values.amount === undefined ? MIN_TOP_UP_CENTS : readCents(values.amount);
    const caller = await openCaller({ pay: 'card' });
    const { baseUrl, settings } = caller;
    const { folder, account } = settings;
    const open: StoredTopUp[] = [];
    for (const former of (await readConfig(folder)).topUps?.[baseUrl] ?? []) {
      const paidTo = await creditedAccount(baseUrl, former.sessionId);
      if (typeof paidTo === 'string') return credited(caller, former, paidTo, output);
      const age = Date.now() - former.openedAt;
      if (age < OPEN_MS) open.push(former);
      else if (paidTo === null && age > CLOSED_MS) await dropTopUp(folder, baseUrl, former);
    }
    const same = open.find((each) => each.amountCents === amountCents && each.account === (account ?? null));
    const purchase = same ?? (await openCreditPurchase(baseUrl, { amountCents, account }));
    const { sessionId, checkoutUrl } = purchase;
    if (!same && sessionId !== null) await storeTopUp(folder, baseUrl, { ...purchase, sessionId });
    if (values.open && !(await openInBrowser(checkoutUrl, baseUrl)))
      output.note(`The page was not opened: no browser was found, or it is neither at ${baseUrl} nor at Stripe.`);
    const place = { checkoutUrl, amountCents };
    if (values['no-wait'] || sessionId === null) {
      return output.done({ ...place, credited: false }, [`Pay ${formatCents(amountCents)} at ${checkoutUrl}`]);
    }
    console.error(`Pay ${formatCents(amountCents)} at ${printable(checkoutUrl)}`);
    const waiting = waitForCredit(baseUrl, sessionId, PATIENCE_MS);
    const paidTo = await withProgress('Waiting for the payment (Ctrl-C loses nothing)', output.isJson, waiting);
    if (paidTo !== undefined) return credited(caller, { ...purchase, sessionId }, paidTo, output);
    output.done({ ...place, credited: false }, ['It was not paid yet. Once it is, run speechgate top-up again.']);
  },
});

async function credited({ client, settings, baseUrl }: Caller, purchase: StoredTopUp, account: string, output: Output) {
  await storeAccount(settings.folder, baseUrl, account);
  await dropTopUp(settings.folder, baseUrl, purchase);
  const { balanceMicroUsd } = await client.topUpStatus(account);
  const shown = shownAccount(account);
  const line = `${formatCents(purchase.amountCents)} credited; the account ${shown} has ${formatUsd(BigInt(balanceMicroUsd))} USD.`;
  if (settings.account !== undefined && settings.account !== account) {
    output.note(`It is another account than ${shownAccount(settings.account)}. config.json keeps former ones.`);
  }
  output.done({ credited: true, amountCents: purchase.amountCents, account: shown, balanceMicroUsd }, [line]);
}

function readCents(text: string): number {
  const microUsd = readUsd(text, '--amount');
  const cents = Number(microUsd / MICRO_USD_PER_CENT);
  if (microUsd % MICRO_USD_PER_CENT === 0n && cents >= MIN_TOP_UP_CENTS) return cents;
  throw new UsageError(`--amount takes whole cents from ${formatCents(MIN_TOP_UP_CENTS)} on; it is ${text}.`);
}
