import type Stripe from 'stripe';
import type { Database } from '../db/database.ts';
import { creditedSessions } from '../top-up/credit-top-up.ts';
import type { Purchases } from '../top-up/purchases.ts';
import type { Failures } from './failures.ts';
import type { Turn } from './reconciler.ts';

/** Credits those of the listed sessions that are paid, ours and not credited yet (R16). */
export async function creditListed(
  db: Database,
  purchases: Purchases,
  sessions: readonly Stripe.Checkout.Session[],
  failures: Failures,
  { done }: Turn,
): Promise<void> {
  const paid = sessions.filter((session) => session.payment_status === 'paid');
  if (paid.length === 0) return;
  const known = await creditedSessions(
    db,
    paid.map((session) => session.id),
  );
  for (const session of paid.filter(({ id }) => !known.has(id))) {
    try {
      const result = await purchases.credit(session);
      if (result.outcome === 'credited' && !result.credit.alreadyCredited) done(1);
    } catch (error) {
      failures.add(error);
    }
  }
}
