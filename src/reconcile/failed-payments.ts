import { testPoint } from '../lib/test-point.ts';
import type { PaymentOutcomes } from '../x402/payment-outcomes.ts';
import type { Resolver } from '../x402/resolver.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

/** Once in five minutes at the default interval. */
const EVERY_TURNS = 20;
const MOST = 100;

/**
 * Looks once more for the payments that failed a day ago: the node that told of their failure may have lied, or lagged.
 * One that is on the chain after all is settled, a deposit credited. Counts those.
 */
export function failedPayments(outcomes: PaymentOutcomes, resolver: Resolver): Reconciler {
  return {
    name: 'failed_payments',
    everyTurns: EVERY_TURNS,
    async run({ signal, done }) {
      const failures = new Failures();
      for (let looks = 0; looks < MOST && !signal.aborted; looks++) {
        const payment = await outcomes.claimLastLook();
        if (!payment) break;
        testPoint('failed payment claimed');
        try {
          const { outcome } = await resolver.lookAgain(payment);
          if (outcome === 'settled') done(1);
        } catch (error) {
          failures.add(error);
        }
      }
      failures.check();
    },
  };
}
