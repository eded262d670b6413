import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import { readUsd, UsageError } from '../../lib/arguments.ts';
import { isLoopback } from '../../lib/loopback.ts';
import { formatUsd, MICRO_USD_PER_CENT } from '../../lib/money.ts';
import { childEnv } from '../../lib/programs.ts';
import { serviceSays, serviceWords } from '../../lib/service-words.ts';
import { OWN_AMOUNT } from '../../payments/top-up/amount.ts';
import { boundedResponse, MAX_JSON_BYTES } from '../client/api.ts';
import { SpeechgateError, UnreachableError } from '../client/index.ts';
import { defineCommand } from './command.ts';
import { CommandError, EXIT } from './failure.ts';
import { type Caller, withCaller } from './open-caller.ts';
import type { Output } from './output.ts';
import { maskedAccount } from './read-values.ts';
import { dropTopUp, readConfig, type StoredTopUp, storeAccount, storeTopUp } from './stored-settings.ts';

const TIMEOUT_MS = 30 * 60_000;
const RESPONSE_TIMEOUT_MS = 15_000;
const POLL_MS = 2_000;
const MAX_ADDRESS_CHARACTERS = 4_096;
const SESSION = /\b(cs_[A-Za-z0-9_]{8,250})/;
const UNPAID = 402;
/** On the page of a payment that the buyer's bank has not confirmed yet. */
const PROCESSING = /Your bank is still processing the payment/;
const ACCOUNT = /<code>([0-9a-f-]{36})<\/code>/;
/** The card processor closes a checkout page after a day. An older page may close before it is paid. */
const OPEN_MS = 23 * 3_600_000;
const CLOSED_MS = 25 * 3_600_000;

const usd = (cents: number): string => formatUsd(BigInt(cents) * MICRO_USD_PER_CENT);

export const topUpCommand = defineCommand({
  usage: `speechgate top-up [--amount USD] [--open]
Buys credit by card: prints the payment page, waits for the payment, and stores the account. After Ctrl-C, run the same
command again to continue.

  --amount USD     at least ${usd(MIN_TOP_UP_CENTS)}, which is also the default
  --open           opens the page in a browser
  --no-wait        prints the page and exits; the next top-up checks the payment`,
  example: 'speechgate top-up --amount 5 --open',
  options: {
    amount: { type: 'string' },
    open: { type: 'boolean', default: false },
    'no-wait': { type: 'boolean', default: false },
  },
  run: async (values, { output, host }) => {
    const amountCents = values.amount === undefined ? MIN_TOP_UP_CENTS : readCents(values.amount);
    await withCaller(host, { pay: 'card' }, async (caller) => {
      const { baseUrl, folder, account } = caller.settings;
      const open: StoredTopUp[] = [];
      for (const former of (await readConfig(folder)).topUps?.[baseUrl] ?? []) {
        const paidTo = await creditedAccount(baseUrl, former.sessionId);
        if (paidTo === UNREACHABLE)
          throw new CommandError({ code: 'UNREACHABLE', exit: EXIT.failed, message: notKnown(former) });
        if (paidTo === AT_BANK)
          return output.done({ amountCents: former.amountCents, credited: false }, [atBank(former)]);
        if (typeof paidTo === 'string') return credited(caller, former, paidTo, output);
        const age = Date.now() - former.openedAt;
        if (age < OPEN_MS) open.push(former);
        else if (paidTo === null && age > CLOSED_MS) await dropTopUp(folder, baseUrl, former);
      }
      const same = open.find((each) => each.amountCents === amountCents && each.account === (account ?? null));
      const purchase = same ?? (await openCreditPurchase(baseUrl, amountCents, account));
      const { sessionId, checkoutUrl } = purchase;
      if (!same && sessionId !== null) await storeTopUp(folder, baseUrl, { ...purchase, sessionId });
      if (values.open && !(await openInBrowser(checkoutUrl, baseUrl, host.env)))
        output.note(
          `--open could not open the payment page: no browser was found, or the page is neither at ${baseUrl} nor at Stripe. Check its URL, then open it yourself.`,
        );
      const checkout = { checkoutUrl, amountCents };
      if (values['no-wait'] || sessionId === null) {
        return output.done({ ...checkout, credited: false }, [`Pay ${usd(amountCents)} USD at ${checkoutUrl}`]);
      }
      output.prompt(`Pay ${usd(amountCents)} USD at ${checkoutUrl}`);
      const waiting = waitForCredit(baseUrl, sessionId);
      const paidTo = await output.withProgress('Waiting for the payment (Ctrl-C stops only the waiting)', waiting);
      if (paidTo === AT_BANK) return output.done({ ...checkout, credited: false }, [atBank(checkout)]);
      if (typeof paidTo === 'string') return credited(caller, { ...purchase, sessionId }, paidTo, output);
      output.done({ ...checkout, credited: false }, [
        paidTo === null
          ? 'The service has not received a payment yet, so nothing was credited. Once you have paid, run speechgate top-up again.'
          : notKnown(checkout),
      ]);
    });
  },
});

const AT_BANK = Symbol('the bank is processing the payment');
const UNREACHABLE = Symbol('the service is unreachable');

const notKnown = ({ amountCents }: { readonly amountCents: number }): string =>
  `The service did not report whether the purchase of ${usd(amountCents)} USD was paid. Do not pay again; run speechgate top-up later to check.`;

const atBank = ({ amountCents }: { readonly amountCents: number }): string =>
  `Your bank is still processing the payment of ${usd(amountCents)} USD. Do not pay again; run speechgate top-up later.`;

async function credited({ client, settings }: Caller, purchase: StoredTopUp, account: string, output: Output) {
  const { folder, baseUrl } = settings;
  await storeAccount(folder, baseUrl, account);
  await dropTopUp(folder, baseUrl, purchase);
  const balanceMicroUsd = await client.topUpStatus(account).then(
    (status) => status.balanceMicroUsd,
    () => null,
  );
  const masked = maskedAccount(account);
  const balance =
    balanceMicroUsd === null
      ? `the balance of the account ${masked} can't be read now. Run speechgate balance later.`
      : `the account ${masked} has ${formatUsd(BigInt(balanceMicroUsd))} USD.`;
  if (settings.account !== undefined && settings.account !== account) {
    output.note(
      `The credited account pays from now on. The id of the former account ${maskedAccount(settings.account)} stays in config.json, in formerAccounts.`,
    );
  }
  output.done({ credited: true, amountCents: purchase.amountCents, account: masked, balanceMicroUsd }, [
    `${usd(purchase.amountCents)} USD credited; ${balance}`,
  ]);
}

function readCents(text: string): number {
  const microUsd = readUsd(text, '--amount');
  const cents = Number(microUsd / MICRO_USD_PER_CENT);
  if (microUsd % MICRO_USD_PER_CENT === 0n && cents >= MIN_TOP_UP_CENTS) return cents;
  throw new UsageError(
    `--amount must be US dollars with at most two decimals, at least ${usd(MIN_TOP_UP_CENTS)}, not ${text}. You were not charged.`,
  );
}

/** An opened checkout. Without a session id in the page's URL, its payment can't be looked up. */
interface CreditPurchase extends Omit<StoredTopUp, 'sessionId'> {
  readonly sessionId: string | null;
}

async function openCreditPurchase(baseUrl: string, amountCents: number, account = ''): Promise<CreditPurchase> {
  const form = { amount: OWN_AMOUNT, ownAmount: (amountCents / 100).toFixed(2), accountId: account };
  const request = { method: 'POST', body: new URLSearchParams(form) };
  const { status, headers, text } = await send(`${baseUrl}/top-up`, request);
  const checkoutUrl = status === 303 ? checkoutPageOf(headers.get('location')) : undefined;
  if (checkoutUrl !== undefined) {
    const sessionId = SESSION.exec(checkoutUrl)?.[1] ?? null;
    return { sessionId, checkoutUrl, amountCents, account: account || null, openedAt: Date.now() };
  }
  const { error } = readBody(text);
  throw new CommandError({
    code: typeof error?.code === 'string' ? serviceWords(error.code) : 'UNKNOWN',
    exit: status === 400 ? EXIT.usage : EXIT.failed,
    message: `The top-up failed. ${typeof error?.message === 'string' ? serviceSays(error.message) : `The service returned status ${status} without a message. Retry later. You were not charged.`}`,
    status,
    traceId: headers.get('x-trace-id'),
  });
}

function checkoutPageOf(location: string | null): string | undefined {
  const url = location !== null && URL.canParse(location) ? new URL(location) : undefined;
  return url && /^https?:$/.test(url.protocol) && url.href.length <= MAX_ADDRESS_CHARACTERS ? url.href : undefined;
}

/** Null if unpaid, undefined if the service does not know. The request itself credits a paid checkout. */
async function creditedAccount(
  baseUrl: string,
  sessionId: string,
): Promise<string | typeof AT_BANK | typeof UNREACHABLE | null | undefined> {
  try {
    const { status, text } = await send(`${baseUrl}/top-up/complete?session_id=${sessionId}`, {});
    if (status === UNPAID) return PROCESSING.test(text) ? AT_BANK : null;
    return status === 200 ? ACCOUNT.exec(text)?.[1] : undefined;
  } catch (error) {
    if (error instanceof UnreachableError) return UNREACHABLE;
    throw error;
  }
}

async function waitForCredit(baseUrl: string, sessionId: string) {
  const end = Date.now() + TIMEOUT_MS;
  for (;;) {
    const found = await creditedAccount(baseUrl, sessionId);
    if (typeof found === 'string' || found === AT_BANK || Date.now() + POLL_MS > end) return found;
    await pause(POLL_MS);
  }
}

async function send(url: string, request: RequestInit) {
  const signal = AbortSignal.timeout(RESPONSE_TIMEOUT_MS);
  const accept = 'application/json, text/html;q=0.9';
  try {
    const response = await fetch(url, { ...request, headers: { accept }, redirect: 'manual', signal });
    const { status, headers } = response;
    return { status, headers, text: await boundedResponse(response, MAX_JSON_BYTES, signal).text() };
  } catch (cause) {
    if (cause instanceof SpeechgateError) throw cause;
    throw new UnreachableError('The service is unavailable. Check its URL, then retry. No new payment was made.', {
      cause,
    });
  }
}

function readBody(text: string): { readonly error?: { readonly code?: unknown; readonly message?: unknown } } {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

const OPENERS: Readonly<Partial<Record<NodeJS.Platform, readonly [program: string, ...args: string[]]>>> = {
  darwin: ['open'],
  win32: ['explorer.exe'],
};

const PROCESSOR = 'https://checkout.stripe.com';

/** Opens only pages of the service or the card processor: the system could pass another URL to any program. */
export async function openInBrowser(address: string, baseUrl: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (!url || !isAllowed(url, new URL(baseUrl))) return false;
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open'];
  const opener = spawn(program, [...args, url.href], { stdio: 'ignore', detached: true, env: childEnv(env) });
  try {
    await once(opener, 'spawn');
    opener.unref();
    return true;
  } catch {
    return false;
  }
}

function isAllowed(page: URL, service: URL): boolean {
  if (page.username !== '' || page.password !== '') return false;
  if (page.origin === PROCESSOR || page.origin === service.origin) return true;
  // The sandbox serves its checkout on another port.
  return page.protocol === 'http:' && isLoopback(page.hostname) && isLoopback(service.hostname);
}
