import type { Budget, KnownOfPurchase, Reservation } from './budget.ts';
import { checkCall, reserveAll } from './caps.ts';
import { sha256 } from './digest.ts';
import {
  type OutcomeUnknownError,
  OverCapError,
  ServiceError,
  type SpeechgateError,
  UnreachableError,
  UntrustedError,
} from './errors.ts';
import type { Reader } from './outcome.ts';
import type { Offer, PaymentWay, Service } from './payment-way.ts';
import { chargedWithin, type PendingPurchase } from './pending-purchase.ts';
import { type End, pursue } from './pursue.ts';
import { answerLost, isJob, readCard } from './read-card.ts';
import { readDirect } from './read-direct.ts';
import { readPrepaid } from './read-prepaid.ts';
import { mayBeTaken } from './read-refusal.ts';
import type { Speech, SpeechOrder } from './speech.ts';
import { delayMs, pause } from './waiting.ts';

/** How often a purchase is tried that the service can't make just now. */
const ATTEMPTS = 3;

const SPEECH_READERS = { card: readCard, direct: readDirect, prepaid: readPrepaid } as const satisfies Record<
  string,
  Reader<Speech>
>;

export interface Purchase {
  readonly way: PaymentWay;
  readonly order: SpeechOrder;
  readonly service: Service;
  readonly budgets: readonly Budget[];
  readonly callLimits: readonly (bigint | undefined)[];
  readonly isDurable: boolean;
  readonly signal: AbortSignal | undefined;
  readonly patienceMs: number;
  /** Is told of a purchase whose end is unknown, or that may still be taken. */
  readonly onUnknown: (pending: PendingPurchase, reservation: Reservation) => void;
}

/** Buys speech: prices it, sets the price aside, signs, sends, and asks until the end is known. */
export async function buySpeech(purchase: Purchase): Promise<Speech> {
  const end = Date.now() + purchase.patienceMs;
  let hasRefreshed = false;
  let refused: Error | undefined;
  for (let attempt = 1; ; attempt += 1) {
    const told = await buyOnce(purchase).catch((error) => {
      // What was signed before is still set aside, and the caps leave no room for another signature.
      throw error instanceof OverCapError && refused ? refused : error;
    });
    if (told.outcome === 'bought') return told.bought;
    if (told.outcome !== 'refused') throw told.error;
    if (told.again === 'terms' && !hasRefreshed) {
      hasRefreshed = true;
      await refreshTerms(purchase);
      continue;
    }
    const delay = delayMs(attempt, told.retryAfterSeconds ?? null);
    if (told.again !== 'anew' || attempt === ATTEMPTS || Date.now() + delay > end) throw told.error;
    refused = told.error;
    await pause(delay, purchase.signal);
  }
}

/** Reads again what a price depends on. */
async function refreshTerms({ service, signal }: Purchase): Promise<void> {
  await Promise.all([service.catalog.read(signal), service.metadata?.refresh(signal)]);
}

async function buyOnce(purchase: Purchase): Promise<End<Speech>> {
  const { way, order, service, budgets, callLimits, isDurable, signal } = purchase;
  signal?.throwIfAborted();
  const offer = await way.offer(order, { ...service, signal, isDurable }).catch((error) => {
    if (!isOutdated(error)) throw error;
    return { outcome: 'refused' as const, error, again: 'terms' as const };
  });
  if ('outcome' in offer) return offer;
  const { maxMicroUsd } = offer;
  checkCall(maxMicroUsd, callLimits);
  const reservation = await reserveAll(budgets, { flow: way.flow, maxMicroUsd });
  const pending = await signed(offer, reservation, signal);
  const end = await pursueSpeech({ ...purchase, pending, isRepetition: false });
  if (!isFinal(end, pending)) purchase.onUnknown(pending, reservation);
  // What a budget can't write down stays set aside there; what was bought is no less bought.
  else await reservation.settle(chargedOf(end, pending), await knownOf(end, pending)).catch(() => {});
  return end;
}

/** What does not fit together any more once prices, payees or models have changed. */
const OUTDATED: ReadonlySet<string> = new Set(['wrong_price', 'wrong_payee', 'unknown_model']);
const isOutdated = (error: unknown): error is SpeechgateError =>
  error instanceof UntrustedError
    ? OUTDATED.has(error.reason)
    : error instanceof ServiceError && error.code === 'UNKNOWN_TTS_MODEL';

/** What is to leave, signed and recorded; nothing is set aside any more when that fails. */
async function signed(
  offer: Offer,
  reservation: Reservation,
  signal: AbortSignal | undefined,
): Promise<PendingPurchase> {
  try {
    signal?.throwIfAborted();
    const pending = await offer.sign();
    await reservation.record(pending);
    signal?.throwIfAborted();
    return pending;
  } catch (error) {
    await reservation.settle(0n, { isUnsent: true });
    throw error;
  }
}

/** Asks for the speech of a pending purchase until its end is known. A card request that is no job is sent once. */
export async function pursueSpeech(asked: {
  readonly pending: PendingPurchase;
  readonly service: Service;
  readonly signal: AbortSignal | undefined;
  readonly patienceMs: number;
  readonly isRepetition: boolean;
}): Promise<End<Speech>> {
  const { pending } = asked;
  const isOnce = pending.flow === 'card' && !isJob(pending);
  const end = await pursue({
    ...asked,
    read: SPEECH_READERS[pending.flow],
    answerMs: await asked.service.timeout.read(asked.signal),
    ...(isOnce && { patienceMs: 0 }),
  });
  if (!isOnce || end.outcome !== 'unknown') return end;
  if (!NEVER_OPENED.has(codeOf(end.error.cause))) return lostOf(pending, end.error);
  const { cause } = end.error;
  return {
    outcome: 'refused',
    error: new UnreachableError('The service could not be reached.', { cause }),
  };
}

/** What Node.js tells of a connection over which nothing was sent; a browser does not tell. */
const NEVER_OPENED: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
]);

const codeOf = (error: unknown): unknown => (error as { cause?: { code?: unknown } } | undefined)?.cause?.code;

/** Counts as charged, since that can't be found out. */
const lostOf = ({ maxMicroUsd }: PendingPurchase, { cause }: OutcomeUnknownError): End<Speech> => ({
  outcome: 'lost',
  error: answerLost(maxMicroUsd, cause),
  chargedMicroUsd: BigInt(maxMicroUsd),
});

/** What its end tells beside the charge. */
export async function knownOf(end: End<Speech>, { flow, headers }: PendingPurchase): Promise<KnownOfPurchase> {
  if (end.outcome === 'refused') return { clockAheadMs: end.clockAheadMs ?? 0 };
  const account = headers['x-credit-account'];
  const balanceMicroUsd = end.outcome === 'bought' ? end.bought.receipt.balanceMicroUsd : null;
  if (flow !== 'card' || account === undefined || balanceMicroUsd === null) return {};
  return { balance: { account: await sha256(account), balanceMicroUsd } };
}

type Final = Exclude<End<unknown>, { outcome: 'unknown' }>;

/** Whether it is known for good what the purchase came to. */
export const isFinal = <E extends End<unknown>>(end: E, pending: PendingPurchase): end is E & Final =>
  end.outcome !== 'unknown' && (end.outcome !== 'refused' || !mayBeTaken(pending, end.clockAheadMs ?? 0));

/** In micro-USD. */
export const chargedOf = (end: Final, pending: PendingPurchase): bigint =>
  end.outcome === 'refused' ? 0n : chargedWithin(end.chargedMicroUsd, pending);
