import { type Budget, checkCall, type KnownOfPurchase, type Reservation, reserveAll } from './budget.ts';
import type { Deposit } from './deposit.ts';
import { sha256 } from './digest.ts';
import {
  AudioLostError,
  OverCapError,
  ServiceError,
  SpeechgateError,
  UnreachableError,
  UntrustedError,
} from './errors.ts';
import type { Offer, PaymentWay, Service } from './payment-way.ts';
import {
  boundedCharge,
  CARD_TARGET,
  canStillSettle,
  DEPOSIT_TARGET,
  hasExpired,
  isJob,
  JOB_TARGET,
  mayNonceBeDeleted,
  type PendingPurchase,
  X402_TARGET,
} from './pending-purchase.ts';
import { responseLost } from './read-speech.ts';
import { type PendingRequest, type Resolution, retryUntilResolved } from './retry-until-resolved.ts';
import type { Speech, SpeechOrder } from './speech.ts';
import { delayMs, pause } from './waiting.ts';

const ATTEMPTS = 3;
/** The service itself waits up to two minutes for the confirmations of a deposit. */
const DEPOSIT_RESPONSE_TIMEOUT_MS = 180_000;
const DEPOSIT_TIMEOUT_MS = 300_000;
/** Mismatches that a fresh catalog or fresh metadata may resolve. */
const OUTDATED: ReadonlySet<string> = new Set(['wrong_price', 'wrong_payee', 'unknown_model']);
/** Error codes of Node.js for a connection that was never opened; browsers give none. */
const NOT_CONNECTED: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
]);

const TARGETS = {
  speech: { card: [CARD_TARGET, JOB_TARGET], direct: [X402_TARGET], prepaid: [X402_TARGET] },
  deposit: { card: [], direct: [DEPOSIT_TARGET], prepaid: [] },
} as const;

export interface Purchase {
  readonly way: PaymentWay;
  readonly order: SpeechOrder;
  readonly service: Service;
  readonly budgets: readonly Budget[];
  readonly callLimits: readonly (bigint | undefined)[];
  readonly isDurable: boolean;
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
  readonly onUnknown: (pending: PendingPurchase, reservation: Reservation) => void;
}

export async function buySpeech(purchase: Purchase): Promise<Speech> {
  const { service, signal } = purchase;
  const deadline = Date.now() + purchase.timeoutMs;
  let hasRefreshed = false;
  let refused: Error | undefined;
  for (let attempt = 1; ; attempt += 1) {
    const result = await buyOnce(purchase).catch((error) => {
      // The earlier signature is still reserved, so the caps leave no room for another one.
      throw error instanceof OverCapError && refused ? refused : error;
    });
    if (result.outcome === 'bought') return result.bought;
    if (result.outcome !== 'refused') throw result.error;
    if (result.retry === 'terms' && !hasRefreshed) {
      hasRefreshed = true;
      await Promise.all([service.catalog.read(signal), service.metadata?.refresh(signal)]);
      continue;
    }
    const delay = delayMs(attempt, result.retryAfterSeconds ?? null);
    if (result.retry !== 'new' || attempt === ATTEMPTS || Date.now() + delay > deadline) throw result.error;
    refused = result.error;
    await pause(delay, signal);
  }
}

async function buyOnce(purchase: Purchase): Promise<Resolution<Speech>> {
  const { way, order, service, budgets, callLimits, isDurable, signal } = purchase;
  signal?.throwIfAborted();
  const offer = await way.offer(order, { ...service, signal, isDurable }).catch((error) => {
    const isOutdated =
      (error instanceof UntrustedError && OUTDATED.has(error.reason)) ||
      (error instanceof ServiceError && error.code === 'UNKNOWN_TTS_MODEL');
    if (!isOutdated) throw error;
    return { outcome: 'refused' as const, error, retry: 'terms' as const };
  });
  if ('outcome' in offer) return offer;
  const { maxMicroUsd } = offer;
  checkCall(maxMicroUsd, callLimits);
  const reservation = await reserveAll(budgets, { flow: way.flow, maxMicroUsd });
  const pending = await signAndRecord(offer, reservation, signal);
  const resolution = await resolveSpeech({ ...purchase, pending, isRetry: false });
  if (!isResolved(resolution, pending)) purchase.onUnknown(pending, reservation);
  // A budget that can't be written keeps the reservation; the purchase itself succeeded.
  else await reservation.settle(chargedOf(resolution, pending), await knownOf(resolution, pending)).catch(() => {});
  return resolution;
}

async function signAndRecord(
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

export interface DepositOptions {
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

export const resolveDeposit = (
  pending: PendingPurchase,
  service: Service,
  { signal, timeoutMs = DEPOSIT_TIMEOUT_MS }: DepositOptions,
  isRetry = true,
): Promise<Resolution<Deposit>> =>
  retryUntilResolved({
    pending,
    service,
    signal,
    isRetry,
    timeoutMs,
    read: service.readers.deposit,
    responseTimeoutMs: DEPOSIT_RESPONSE_TIMEOUT_MS,
  });

/** A card request without a job is sent once, because a retry would be charged again. */
export async function resolveSpeech(
  request: Omit<PendingRequest<Speech>, 'read' | 'responseTimeoutMs'>,
): Promise<Resolution<Speech>> {
  const { pending, service, signal } = request;
  const isSentOnce = pending.flow === 'card' && !isJob(pending);
  const resolution = await retryUntilResolved({
    ...request,
    read: service.readers[pending.flow],
    responseTimeoutMs: await service.catalog.speechTimeoutMs(signal),
    ...(isSentOnce && { timeoutMs: 0 }),
  });
  if (!isSentOnce || resolution.outcome !== 'unknown') return resolution;
  const { cause } = resolution.error;
  if (NOT_CONNECTED.has((cause as { cause?: { code?: unknown } } | undefined)?.cause?.code)) {
    return {
      outcome: 'refused',
      error: new UnreachableError('The service is unavailable. Check its URL, then retry. You were not charged.', {
        cause,
      }),
    };
  }
  // The charge can't be looked up, so it counts in full.
  const { maxMicroUsd } = pending;
  return { outcome: 'lost', error: responseLost(maxMicroUsd, cause, null), chargedMicroUsd: BigInt(maxMicroUsd) };
}

export async function knownOf(resolution: Resolution<Speech>, pending: PendingPurchase): Promise<KnownOfPurchase> {
  if (resolution.outcome === 'refused') return { clockAheadMs: resolution.clockAheadMs ?? 0 };
  return knownBalance(pending, resolution.outcome === 'bought' ? resolution.bought : null);
}

export async function knownBalance(
  { flow, headers }: PendingPurchase,
  speech: Speech | null,
): Promise<KnownOfPurchase> {
  const account = headers['x-credit-account'];
  if (flow !== 'card' || account === undefined) return {};
  return { balance: { account: await sha256(account), balanceMicroUsd: speech?.receipt.balanceMicroUsd ?? null } };
}

type FinalResolution = Exclude<Resolution<unknown>, { outcome: 'unknown' }>;

const isResolved = <E extends Resolution<unknown>>(
  resolution: E,
  pending: PendingPurchase,
): resolution is E & FinalResolution =>
  resolution.outcome !== 'unknown' &&
  (resolution.outcome !== 'refused' || !canStillSettle(pending, resolution.clockAheadMs));

export const chargedOf = (resolution: FinalResolution, pending: PendingPurchase): bigint =>
  resolution.outcome === 'refused' ? 0n : boundedCharge(resolution.chargedMicroUsd, pending);

export interface Conclusion {
  /** 0 when nothing was charged. The maximum for a card request without a job, which cannot be looked up. */
  readonly chargedMicroUsd: bigint;
  readonly speech: Speech | null;
}

export function checkPending(pending: PendingPurchase, kind: PendingPurchase['kind'], { baseUrl }: Service): void {
  const targets: readonly string[] = TARGETS[kind][pending.flow] ?? [];
  if (pending.kind !== kind || pending.method !== 'POST' || !targets.includes(pending.target)) {
    throw new SpeechgateError(
      `The purchase ${pending.identifier} is not a ${kind}. Pass the \`pending\` of a ${kind}. Nothing was sent.`,
    );
  }
  if (pending.baseUrl !== baseUrl) {
    throw new SpeechgateError(
      `The purchase ${pending.identifier} was made at ${pending.baseUrl}. Resume it with a client for that baseUrl. Nothing was sent.`,
    );
  }
  if (pending.flow === 'card' && !isJob(pending)) {
    throw new AudioLostError(
      `The card purchase ${pending.identifier} was made without \`durable\`, so it cannot be resumed. Check your balance: you may have been charged once.`,
      { chargedMicroUsd: null, maxMicroUsd: BigInt(pending.maxMicroUsd) },
    );
  }
}

/** Null while the signature is valid or the outcome unknown. Sends nothing once the nonce may have been deleted. */
export async function resolveOutcome(
  pending: PendingPurchase,
  service: Service,
  signal: AbortSignal | undefined,
): Promise<Conclusion | null> {
  if (pending.flow === 'card' && pending.kind === 'speech' && !isJob(pending)) {
    return { chargedMicroUsd: BigInt(pending.maxMicroUsd), speech: null };
  }
  checkPending(pending, pending.kind, service);
  if ((pending.expiresAt !== null && !hasExpired(pending)) || mayNonceBeDeleted(pending)) return null;
  if (pending.kind === 'deposit') {
    const resolution = await resolveDeposit(pending, service, { signal, timeoutMs: 0 });
    return isResolved(resolution, pending) ? { chargedMicroUsd: chargedOf(resolution, pending), speech: null } : null;
  }
  const resolution = await resolveSpeech({ pending, service, signal, timeoutMs: 0, isRetry: true });
  if (!isResolved(resolution, pending)) return null;
  return {
    chargedMicroUsd: chargedOf(resolution, pending),
    speech: resolution.outcome === 'bought' ? resolution.bought : null,
  };
}
