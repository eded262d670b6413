import { setTimeout as pause } from 'node:timers/promises';
import { boundedResponse, MOST_JSON_BYTES } from '../../client/bounded-response.ts';
import { UnreachableError } from '../../client/errors.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { OWN_AMOUNT } from '../../top-up/amount.ts';
import { EXIT } from './exit-codes.ts';
import { CommandError, serviceSays } from './failure.ts';
import type { StoredTopUp } from './stored-settings.ts';

const DEADLINE_MS = 15_000;
const POLL_MS = 2_000;
const MAX_ADDRESS_CHARACTERS = 4_096;
/** As the card processor names its sessions, in the address of their page. */
const SESSION = /\b(cs_[A-Za-z0-9_]{8,250})/;
/** As the service answers for a purchase that is not paid. */
const UNPAID = 402;
const ACCOUNT = /<code>([0-9a-f-]{36})<\/code>/;

/** A purchase that was opened; it can't be asked for where the address of its page does not tell the session. */
interface CreditPurchase extends Omit<StoredTopUp, 'sessionId'> {
  readonly sessionId: string | null;
}

/**
 * Opens a purchase of credit, as the service's page does, for an account or a new one.
 * @throws CommandError when the service sells none
 * @throws UnreachableError
 */
export async function openCreditPurchase(
  baseUrl: string,
  { amountCents, account }: { readonly amountCents: number; readonly account: string | undefined },
): Promise<CreditPurchase> {
  const form = { amount: OWN_AMOUNT, ownAmount: (amountCents / 100).toFixed(2), accountId: account ?? '' };
  const answer = await ask(`${baseUrl}/top-up`, { method: 'POST', body: new URLSearchParams(form) });
  const checkoutUrl = answer.status === 303 ? pageOf(answer.headers.get('location')) : undefined;
  if (checkoutUrl !== undefined) {
    const sessionId = SESSION.exec(checkoutUrl)?.[1] ?? null;
    return { sessionId, checkoutUrl, amountCents, account: account ?? null, openedAt: Date.now() };
  }
  const { error } = (await answer.json().catch(() => ({}))) as { error?: { code?: unknown; message?: unknown } };
  const { status, headers } = answer;
  throw new CommandError({
    code: typeof error?.code === 'string' ? serviceWords(error.code) : 'UNKNOWN',
    exit: status === 400 ? EXIT.usage : EXIT.failed,
    message: `No credit can be bought. ${typeof error?.message === 'string' ? serviceSays(error.message) : `The service answered with status ${status}.`}`,
    ...{ status, traceId: headers.get('x-trace-id') },
  });
}

/** The address of a page of the web; undefined for anything else, which neither a person nor a browser should get. */
function pageOf(location: string | null): string | undefined {
  const url = location !== null && URL.canParse(location) ? new URL(location) : undefined;
  return url && /^https?:$/.test(url.protocol) && url.href.length <= MAX_ADDRESS_CHARACTERS ? url.href : undefined;
}

/**
 * The account that the purchase has credited; null when it is not paid, undefined while it can't be looked at. By asking,
 * it is credited.
 */
export async function creditedAccount(baseUrl: string, sessionId: string): Promise<string | null | undefined> {
  try {
    const answer = await ask(`${baseUrl}/top-up/complete?session_id=${sessionId}`, {});
    if (answer.status === UNPAID) return null;
    return answer.status === 200 ? ACCOUNT.exec(await answer.text())?.[1] : undefined;
  } catch (error) {
    if (error instanceof UnreachableError) return undefined;
    throw error;
  }
}

/** Waits until the purchase is credited; undefined when it was not in the time, in milliseconds. */
export async function waitForCredit(
  baseUrl: string,
  sessionId: string,
  patienceMs: number,
): Promise<string | undefined> {
  const end = Date.now() + patienceMs;
  for (;;) {
    const account = (await creditedAccount(baseUrl, sessionId)) ?? undefined;
    if (account !== undefined || Date.now() + POLL_MS > end) return account;
    await pause(POLL_MS);
  }
}

async function ask(url: string, request: RequestInit): Promise<Response> {
  const headers = { accept: 'application/json, text/html;q=0.9' };
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const response = await fetch(url, { ...request, headers, redirect: 'manual', signal }).catch((cause) => {
    throw new UnreachableError('The service could not be reached.', { cause });
  });
  return boundedResponse(response, MOST_JSON_BYTES, signal);
}
