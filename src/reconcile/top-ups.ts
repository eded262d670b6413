import type Stripe from 'stripe';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import { purchaseStates } from '../payments/top-up/credit-top-up.ts';
import * as openPurchases from '../payments/top-up/open-purchases.ts';
import type { Processor } from '../payments/top-up/processor.ts';
import { idOf } from '../payments/top-up/processor-call.ts';
import type { Purchases } from '../payments/top-up/purchases.ts';
import { runPass } from './processor-pass.ts';
import { eachClaimed, type Failures, type Reconciler, reconciler, type Turn } from './reconciler.ts';

/** Sessions retrieved per turn. If more are due, MOST_PAGES pages of the processor's list are read. */
const MOST_CHECKS = 25;
const MOST_PAGES = 5;
/** Every five minutes at the default interval. */
const SWEEP_TURNS = 20;

/** Credits paid sessions whose buyers never returned, and closes failed purchases (R16). Counts credits. */
export function topUps(db: Database, processor: Processor, purchases: Purchases): Reconciler {
  return reconciler('top_ups', 1, async (turn, failures) => {
    await openPurchases.endNeverOpened(db);
    const { begin, young_since } = await openPurchases.readTurnBegin(db);
    const claim = () => openPurchases.claimDuePurchase(db, begin);
    const checks = await eachClaimed(MOST_CHECKS, turn, failures, claim, (purchase) => check(purchase, turn));
    if (checks === MOST_CHECKS) await readList(young_since, failures, turn);
  });

  async function check(purchase: openPurchases.OpenPurchase, { done }: Turn): Promise<void> {
    testPoint('purchase claimed');
    const { id, session_id, age_seconds, claimed_at } = purchase;
    const session = await processor.findSession(session_id);
    const result = session && (await purchases.credit(session));
    if (result?.outcome === 'credited') {
      if (!result.credit.wasCredited) done(1);
      return;
    }
    const isOver = await hasEnded(session, age_seconds);
    testPoint('purchase unpaid');
    if (isOver) await openPurchases.expirePurchase(db, id, claimed_at);
  }

  /** A completed checkout waits for its bank as long as the processor does not say that the payment failed. */
  async function hasEnded(session: Stripe.Checkout.Session | undefined, ageSeconds: number): Promise<boolean> {
    if (!session) return ageSeconds > openPurchases.SESSION_SECONDS + openPurchases.MARGIN_SECONDS;
    if (session.status !== 'complete')
      return session.status === 'expired' || ageSeconds > openPurchases.GIVE_UP_SECONDS;
    const payment = idOf(session.payment_intent);
    return payment !== null && (await processor.hasPaymentFailed(payment));
  }

  async function readList(createdFrom: number, failures: Failures, turn: Turn): Promise<void> {
    let after: string | undefined;
    for (let pages = 0; pages < MOST_PAGES && !turn.signal.aborted; pages++) {
      const { entries, hasMore } = await processor.listSessions(createdFrom, after);
      await creditListed(db, purchases, entries, failures, turn);
      if (!hasMore) return;
      after = entries.at(-1)?.id;
    }
  }
}

/** Credits paid sessions whose row or session id is missing, after a crash or a restore (R16). Counts credits. */
export const checkoutSweep = (db: Database, processor: Processor, purchases: Purchases): Reconciler =>
  reconciler('checkout_sweep', SWEEP_TURNS, async (turn, failures) => {
    const read = (createdFrom: number, after: string | undefined) => processor.listSessions(createdFrom, after);
    // A failed session is listed again for a day: the watermark stays that far behind. The audit names the rest.
    const handle = async (sessions: readonly Stripe.Checkout.Session[]) => {
      await creditListed(db, purchases, sessions, failures, turn);
      return true;
    };
    await runPass(db, 'sessions', { read, handle }, turn);
  });

/** Credits sessions that are paid and ours, and records pending ones (R16). A failure does not stop the others. */
async function creditListed(
  db: Database,
  purchases: Purchases,
  sessions: readonly Stripe.Checkout.Session[],
  failures: Failures,
  { done }: Turn,
): Promise<void> {
  if (sessions.length === 0) return;
  const ids = sessions.map((session) => session.id);
  const states = await purchaseStates(db, ids);
  for (const session of sessions) {
    const state = states.get(session.id);
    if (state === 'credited' || (state !== undefined && session.payment_status !== 'paid')) continue;
    try {
      const result = await purchases.credit(session);
      if (result.outcome === 'credited' && !result.credit.wasCredited) done(1);
      if (result.outcome === 'unpaid') await purchases.follow(result.purchase);
    } catch (error) {
      failures.note(error);
    }
  }
}
