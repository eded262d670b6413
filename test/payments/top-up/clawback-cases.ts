import type { TestCheckout } from '../../support/checkout.ts';
import type { Sale } from './refunded.ts';

type Step = (checkout: TestCheckout, sale: Sale) => Promise<unknown>;

const refund =
  (amountCents?: number, status?: 'pending'): Step =>
  (checkout, { session }) =>
    checkout.refund({ session, ...(amountCents && { amountCents }), ...(status && { status }) });
const settle =
  (status: 'succeeded' | 'failed' | 'canceled'): Step =>
  async (checkout) => {
    const [newest] = (await checkout.stripe.refunds.list({ limit: 1 })).data;
    await checkout.settleRefund(newest?.id ?? '', status);
  };
const dispute =
  (amountCents?: number, status?: 'warning_needs_response'): Step =>
  (checkout, { session }) =>
    checkout.openDispute({ session, ...(amountCents && { amountCents }), ...(status && { status }) });
const turn =
  (status: Parameters<TestCheckout['updateDispute']>[1]): Step =>
  async (checkout) => {
    const [newest] = (await checkout.stripe.disputes.list({ limit: 1 })).data;
    await checkout.updateDispute(newest?.id ?? '', status);
  };

/** Steps of the processor after a purchase of 500 cents of which so many were spent, and what is left after each. */
export const CLAWBACKS: readonly [
  name: string,
  spent: number,
  steps: readonly [Step, balance: number, debt: number][],
][] = [
  ['a full refund after some credit was spent', 120, [[refund(), 0, 120]]],
  [
    'several partial refunds',
    450,
    [
      [refund(30), 20, 0],
      [refund(30), 0, 10],
      [refund(), 0, 450],
    ],
  ],
  [
    'a refund that fails later',
    450,
    [
      [refund(200, 'pending'), 0, 150],
      [settle('failed'), 50, 0],
    ],
  ],
  [
    'a dispute that is won, lost in arbitration and finally won',
    100,
    [
      ...([
        [dispute(), 0, 100],
        [turn('won'), 400, 0],
        [turn('lost'), 0, 100],
        [turn('won'), 400, 0],
      ] as [Step, number, number][]),
    ],
  ],
  [
    'a dispute that is lost, appealed and won',
    0,
    [
      [dispute(), 0, 0],
      [turn('lost'), 0, 0],
      [turn('appeal_needs_response'), 0, 0],
      [turn('appeal_under_review'), 0, 0],
      [turn('won'), 500, 0],
    ],
  ],
  [
    'an inquiry that becomes a dispute',
    0,
    [
      [dispute(500, 'warning_needs_response'), 500, 0],
      [turn('needs_response'), 0, 0],
    ],
  ],
  [
    'a dispute after a partial refund',
    0,
    [
      [refund(200), 300, 0],
      [dispute(300), 0, 0],
    ],
  ],
];
