import type Stripe from 'stripe';
import type { Database } from '../db/database.ts';
import { purchaseStates } from '../top-up/credit-top-up.ts';
import type { Purchases } from '../top-up/purchases.ts';
import type { Failures } from './failures.ts';
import type { Turn } from './reconciler.ts';

/**
 * Credits those of the listed sessions that are paid, ours and not credited yet, and records those whose payment is still
 * on its way (R16). However many fail, the others have their turn.
 */
export async function creditListed(
  db: Database,
  purchases: Purchases,
  sessions: readonly Stripe.Checkout.Session[],
  failures: Failures,
  { done }: Turn,
): Promise<void> {
  if (sessions.length === 0) return;
  const states = await purchaseStates(
    db,
    sessions.map((session) => session.id),
  );
  for (const session of sessions) {
    const state = states.get(session.id);
    if (state === 'credited' || (state !== undefined && session.payment_status !== 'paid')) continue;
    try {
      const result = await purchases.credit(session);
      if (result.outcome === 'credited' && !result.credit.alreadyCredited) done(1);
      if (result.outcome === 'unpaid') await purchases.follow(result.purchase);
    } catch (error) {
      failures.note(error);
    }
  }
}
