import fc from 'fast-check';
import type { TestCheckout } from '../support/checkout.ts';

type RefundEnd = Parameters<TestCheckout['settleRefund']>[1];
type DisputeStatus = Parameters<TestCheckout['updateDispute']>[1];

/** What happens to one account. A number between 0 and 1 chooses among what there is, or a share of it. */
export type Step =
  | { readonly step: 'buy'; readonly cents: number }
  | { readonly step: 'spend'; readonly share: number; readonly end: 'capture' | 'void' | 'later' }
  | { readonly step: 'refund'; readonly of: number; readonly share: number; readonly status: 'pending' | 'succeeded' }
  | { readonly step: 'settle'; readonly of: number; readonly status: RefundEnd }
  | { readonly step: 'dispute'; readonly of: number; readonly share: number; readonly status: DisputeStatus }
  | { readonly step: 'turn'; readonly of: number; readonly status: DisputeStatus }
  | { readonly step: 'follow'; readonly reconciler: 'clawback_sweep' | 'clawbacks' | 'debts' };

// A double of fast-check is mostly next to 0.
const share = fc.integer({ min: 0, max: 999 }).map((thousandths) => thousandths / 1000);
const cents = fc.integer({ min: 500, max: 3000 });
const status = fc.constantFrom<DisputeStatus>(
  ...(['warning_needs_response', 'warning_under_review', 'warning_closed', 'prevented'] as const),
  ...(['needs_response', 'under_review', 'won', 'lost', 'needs_response', 'under_review', 'won', 'lost'] as const),
);

const anyStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ step: fc.constant('buy' as const), cents }) },
  {
    weight: 6,
    arbitrary: fc.record({
      step: fc.constant('spend' as const),
      share,
      end: fc.constantFrom('capture' as const, 'capture' as const, 'void' as const, 'later' as const),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      ...{ step: fc.constant('refund' as const), of: share, share },
      status: fc.constantFrom('pending' as const, 'succeeded' as const),
    }),
  },
  {
    // Most find nothing pending.
    weight: 5,
    arbitrary: fc.record({
      ...{ step: fc.constant('settle' as const), of: share },
      status: fc.constantFrom<RefundEnd>('succeeded', 'failed', 'canceled', 'requires_action'),
    }),
  },
  { weight: 3, arbitrary: fc.record({ step: fc.constant('dispute' as const), of: share, share, status }) },
  { weight: 4, arbitrary: fc.record({ step: fc.constant('turn' as const), of: share, status }) },
  {
    weight: 3,
    arbitrary: fc.record({
      step: fc.constant('follow' as const),
      reconciler: fc.constantFrom('clawback_sweep' as const, 'clawbacks' as const, 'debts' as const),
    }),
  },
);

/** Random lives of accounts, each of which begins with a purchase. */
export const histories = (seed: number, count: number): readonly (readonly Step[])[] =>
  fc
    .sample(fc.tuple(cents, fc.array(anyStep, { minLength: 3, maxLength: 14 })), { seed, numRuns: count })
    .map(([first, more]) => [{ step: 'buy', cents: first }, ...more]);
