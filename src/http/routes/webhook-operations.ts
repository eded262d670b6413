import Stripe from 'stripe';
import type { WebhooksOperations } from '../../contract/operations.ts';
import type { Database } from '../../db/database.ts';
import { checkNext } from '../../payments/top-up/sweep-pass.ts';
import type { OperationContext } from '../operations.ts';
import { failure } from '../structured-error.ts';

const CLAWBACKS = ['clawback_sweep', 'clawbacks'];
/** The reconcilers that read what an event is about. */
const READERS: Readonly<Record<string, readonly string[]>> = {
  'checkout.session': ['top_ups'],
  refund: CLAWBACKS,
  'charge.dispute': CLAWBACKS,
};

/**
 * Events of the card processor are hints: reconcilers then read from the processor what they book (R16, R61). To callers
 * this service sends no events, webhooks or callbacks (R77).
 */
export const webhookOperations = (
  db: Database,
  secret: string,
  hurry: (reconcilers: readonly string[]) => void,
): WebhooksOperations<OperationContext> => ({
  receiveStripeEvent: async ({ headers }, { bytes }) => {
    const event = readEvent(bytes, headers['stripe-signature'], secret);
    if (!event) {
      const message =
        'stripe-signature is not a valid signature of this body, or is older than five minutes. Check STRIPE_WEBHOOK_SECRET and the clock; nothing was booked.';
      return failure('INVALID_REQUEST', message, { field: 'stripe-signature', rule: 'signature' });
    }
    const readers = READERS[event.type.slice(0, event.type.lastIndexOf('.'))];
    if (!readers) return { status: 204 };
    await checkNext(db, String((event.data.object as { readonly id?: unknown }).id));
    hurry(readers);
    return { status: 204 };
  },
});

function readEvent(bytes: Buffer, signature: string, secret: string): Stripe.Event | undefined {
  try {
    return Stripe.webhooks.constructEvent(bytes, signature, secret);
  } catch {
    return undefined;
  }
}
