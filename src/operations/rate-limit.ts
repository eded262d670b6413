import type { OperationContext } from '../http/context.ts';
import { rateLimited, rateLimitHeaders } from '../http/rate-limit.ts';
import { addressKey } from '../limits/address-key.ts';
import type { Bucket } from '../limits/rolling-window.ts';
import type { Slot } from '../limits/slot.ts';

/** The bucket that all metered speech from one address shares, unless an account pays for it (R48). */
export const addressBucket = (context: OperationContext): Bucket => ({ scope: 'ip', key: addressKey(context.ip) });

/**
 * Awaits the slot that a request takes, and shows the state of its bucket in the answer's headers whatever that answer
 * will be. Tells the refusal when there was no slot, otherwise undefined.
 */
export async function meter(context: OperationContext, taken: Promise<Slot>) {
  const slot = await taken;
  showSlot(context, slot);
  return slot.allowed ? undefined : rateLimited(slot);
}

/** Shows the state of a bucket in the answer's headers. */
export function showSlot(context: OperationContext, slot: Slot): void {
  for (const [name, value] of Object.entries(rateLimitHeaders(slot))) context.setHeader(name, value);
}
