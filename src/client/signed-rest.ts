import type { KnownOfPurchase } from './budget.ts';
import type { PendingPurchase } from './pending-purchase.ts';

/** Seconds by which two clocks may differ, or a request may be late. */
export const CLOCK_LEEWAY_SECONDS = 30;

/** What was signed and, by the service's word, not charged. */
export interface SignedRest {
  readonly microUsd: bigint;
  /** Unix milliseconds of the own clock from which on the signature can't be spent any more. */
  readonly untilMs: number;
}

/** Of a purchase that was charged so; undefined where a signature has left nothing that could still be charged. */
export function signedRest(
  pending: PendingPurchase | undefined,
  chargedMicroUsd: bigint,
  { isUnsent = false, clockAheadMs = 0 }: KnownOfPurchase,
): SignedRest | undefined {
  if (isUnsent || !pending || pending.expiresAt === null) return undefined;
  const microUsd = BigInt(pending.maxMicroUsd) - chargedMicroUsd;
  const untilMs = (pending.expiresAt + CLOCK_LEEWAY_SECONDS) * 1000 + Math.max(0, clockAheadMs);
  return microUsd > 0n ? { microUsd, untilMs } : undefined;
}
