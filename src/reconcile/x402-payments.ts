import { testPoint } from '../lib/test-point.ts';
import type { PaymentStates } from '../payments/x402/payment-states.ts';
import type { Reservations } from '../payments/x402/reservations.ts';
import type { Resolver } from '../payments/x402/resolver.ts';
import { eachClaimed, type Reconciler, reconciler } from './reconciler.ts';

const MOST = 200;
const MOST_LAST_LOOKS = 100;
/** Every five minutes at the default interval. */
const LAST_LOOK_TURNS = 20;

/** Releases the reservations of dead processes (R26). Counts reservations. */
export const abandonedPayments = (reservations: Reservations): Reconciler =>
  reconciler('abandoned_payments', 1, async ({ signal, done }, failures) => {
    for (const abandoned of await reservations.findAbandoned(MOST)) {
      if (signal.aborted) break;
      try {
        const payment = await reservations.takeOver(abandoned, abandoned.headBlock);
        if (!payment) continue;
        testPoint('reservation taken over');
        if (await reservations.release(payment)) done(1);
      } catch (error) {
        failures.add(error);
      }
    }
  });

/** Asks the chain about payments without a clear outcome (R23, R25, R35, R45). Counts those settled or failed for good. */
export const doubtfulPayments = (states: PaymentStates, resolver: Resolver): Reconciler =>
  reconciler('doubtful_payments', 1, async (turn, failures) => {
    const since = await states.now();
    const claim = () => states.claimNextCheck(since);
    await eachClaimed(MOST, turn, failures, claim, async (payment) => {
      testPoint('doubtful payment claimed');
      const { outcome } = await resolver.resolveClaimed(payment);
      if (outcome !== 'open') turn.done(1);
    });
  });

/** Looks again a day after a failure: the node may have lied or lagged. Counts payments that are paid after all. */
export const failedPayments = (states: PaymentStates, resolver: Resolver): Reconciler =>
  reconciler('failed_payments', LAST_LOOK_TURNS, async (turn, failures) => {
    const claim = () => states.claimLastLook();
    await eachClaimed(MOST_LAST_LOOKS, turn, failures, claim, async (payment) => {
      testPoint('failed payment claimed');
      const { outcome } = await resolver.lookAgain(payment);
      if (outcome === 'settled') turn.done(1);
    });
  });
