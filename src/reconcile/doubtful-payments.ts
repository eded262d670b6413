import { testPoint } from '../lib/test-point.ts';
import type { PaymentOutcomes } from '../x402/payment-outcomes.ts';
import type { Resolver } from '../x402/resolver.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

const MOST = 200;

/**
 * Asks the chain about the payments whose settlement was refused, has an unknown end, or was under way when its process
 * died (R23, R25, R45). Counts those that are settled or have failed for good.
 */
export function doubtfulPayments(outcomes: PaymentOutcomes, resolver: Resolver): Reconciler {
  return {
    name: 'doubtful_payments',
    async run({ signal, done }) {
      const failures = new Failures();
      const since = await outcomes.now();
      for (let checks = 0; checks < MOST && !signal.aborted; checks++) {
        const payment = await outcomes.claimNextCheck(since);
        if (!payment) break;
        testPoint('doubtful payment claimed');
        try {
          const { outcome } = await resolver.resolveClaimed(payment);
          if (outcome !== 'open') done(1);
        } catch (error) {
          failures.add(error);
        }
      }
      failures.check();
    },
  };
}
