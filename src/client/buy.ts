import type { Budget, Reservation } from './budget.ts';
import { checkCall, reserveAll } from './caps.ts';
import { type OutcomeUnknownError, UnreachableError } from './errors.ts';
import type { Outcome, Reader } from './outcome.ts';
import type { Offer, PaymentWay, Service } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { type End, pursue } from './pursue.ts';
import { answerLost, isJob, readCard } from './read-card.ts';
import { readDirect } from './read-direct.ts';
import { readPrepaid } from './read-prepaid.ts';
import type { Speech, SpeechOrder } from './speech.ts';
import { delayMs, pause } from './waiting.ts';

/** Milliseconds that one answer with speech may take. */
const ANSWER_MS = 120_000;
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
  for (let attempt = 1; ; attempt += 1) {
    const told = await buyOnce(purchase);
    if (told.outcome === 'bought') return told.bought;
    if (told.outcome !== 'refused') throw told.error;
    if (told.again === 'metadata' && !hasRefreshed) {
      hasRefreshed = true;
      await purchase.service.metadata?.refresh();
      continue;
    }
    const delay = delayMs(attempt, told.retryAfterSeconds ?? null);
    if (told.again !== 'anew' || attempt === ATTEMPTS || Date.now() + delay > end) throw told.error;
    await pause(delay, purchase.signal);
  }
}

async function buyOnce(purchase: Purchase): Promise<End<Speech>> {
  const { way, order, service, budgets, callLimits, isDurable, signal } = purchase;
  signal?.throwIfAborted();
  const offer = await way.offer(order, { ...service, signal, isDurable });
  const { maxMicroUsd } = offer;
  checkCall(maxMicroUsd, callLimits);
  const reservation = await reserveAll(budgets, { flow: way.flow, maxMicroUsd });
  const pending = await signed(offer, reservation, signal);
  const end = await pursueSpeech({ ...purchase, pending, isRepetition: false });
  if (end.outcome === 'unknown' || mayBeTaken(end, pending)) purchase.onUnknown(pending, reservation);
  // What a budget can't write down stays set aside there; what was bought is no less bought.
  else await reservation.settle(chargedOf(end, pending)).catch(() => {});
  return end;
}

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
    await reservation.settle(0n);
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
    answerMs: ANSWER_MS,
    ...(isOnce && { patienceMs: 0 }),
  });
  if (!isOnce || end.outcome !== 'unknown') return end;
  if (!NEVER_OPENED.has(codeOf(end.error.cause))) return lostOf(pending, end.error);
  const { cause } = end.error;
  return {
    outcome: 'refused',
    isSure: true,
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

/** Whoever has the authorization can settle it until it ends, whatever was answered: it stays set aside until then. */
const mayBeTaken = (end: End<unknown>, { flow }: PendingPurchase): boolean =>
  flow === 'direct' && end.outcome === 'refused' && end.isSure !== true;

/** In micro-USD; never more than was set aside, and all of it where the service tells no such amount. */
export function chargedOf(
  end: Extract<Outcome<unknown>, { outcome: 'bought' | 'lost' | 'refused' }>,
  pending: PendingPurchase,
): bigint {
  if (end.outcome === 'refused') return 0n;
  const { chargedMicroUsd } = end;
  const maxMicroUsd = BigInt(pending.maxMicroUsd);
  return chargedMicroUsd < 0n || chargedMicroUsd > maxMicroUsd ? maxMicroUsd : chargedMicroUsd;
}
