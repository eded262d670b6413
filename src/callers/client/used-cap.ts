import { CLOCK_LEEWAY_SECONDS, type PendingPurchase } from './pending-purchase.ts';

/** A service whose `Date` is absurd can't make a time that is none. */
const MAX_DATE_MS = 8.64e15;

/** Micro-USD that count toward a cap. */
export interface UsedCap {
  readonly spentMicroUsd?: bigint;
  /** Purchases that are not settled, and the rest of signed amounts that can still be charged. */
  readonly reservedMicroUsd?: bigint;
  /** When the last signature of these expires; null if none of them has one. */
  readonly reservedUntil?: Date | null;
  /** Signed amounts that only the service reports as not charged. */
  readonly unconfirmedMicroUsd?: bigint;
}

/** The part of a signed amount that the service reports as not charged. */
export interface SignedRest {
  readonly microUsd: bigint;
  /** Unix milliseconds of the local clock after which the signature is expired. */
  readonly untilMs: number;
}

interface OpenReservation {
  readonly maxMicroUsd: bigint;
  readonly pending?: PendingPurchase | undefined;
}

export function reservedOf(open: readonly OpenReservation[], rests: readonly SignedRest[], nowMs: number) {
  const valid = rests.filter(({ untilMs }) => nowMs < untilMs);
  const amounts = [...open.map(({ maxMicroUsd }) => maxMicroUsd), ...valid.map(({ microUsd }) => microUsd)];
  const ends = [...open.map(({ pending }) => untilMsOf(pending?.expiresAt)), ...valid.map(({ untilMs }) => untilMs)];
  const lastMs = Math.max(...ends);
  return {
    reservedMicroUsd: amounts.reduce((sum, amount) => sum + amount, 0n),
    reservedUntil: nowMs < lastMs ? new Date(Math.min(lastMs, MAX_DATE_MS)) : null,
  };
}

/** In Unix milliseconds, with the leeway; 0 without an expiry. */
export const untilMsOf = (expiresAt: number | null | undefined): number =>
  expiresAt == null ? 0 : (expiresAt + CLOCK_LEEWAY_SECONDS) * 1000;

/** Options of `speechgate connect` that raise a cap, by its scope. */
export const CAP_OPTIONS = {
  call: '--max-per-call',
  client: '--max-total',
  day: '--max-per-day',
  total: '--max-total',
  unconfirmed: '--max-per-day or --max-total',
} as const;

/** Follows the words for what is left of a cap; empty if nothing is used. */
export function usedText(used: UsedCap, format: (microUsd: bigint) => string): string {
  const { spentMicroUsd = 0n, reservedMicroUsd = 0n, reservedUntil, unconfirmedMicroUsd = 0n } = used;
  const parts = [
    spentMicroUsd > 0n && `${format(spentMicroUsd)} is spent`,
    reservedMicroUsd > 0n &&
      `${format(reservedMicroUsd)} is reserved for purchases that ${stillCharged(reservedUntil)}`,
    unconfirmedMicroUsd > 0n &&
      `${format(unconfirmedMicroUsd)} was signed for purchases that only the service reports as not charged`,
  ].filter(Boolean);
  return parts.length === 0 ? '' : `: ${parts.join(', ')}`;
}

export const stillCharged = (until: Date | null | undefined): string =>
  `may still be charged${until ? `, by signature until ${until.toISOString().replace(/\.\d+Z$/, 'Z')}` : ''}`;
