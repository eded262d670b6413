import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentPayload, SettleResponse } from '@x402/core/types';
import {
  anotherTransaction,
  nonceAlreadyUsed,
  onlyClaimed,
  type SettleFault,
  settlementPending,
} from '../../../test/support/facilitator-faults.ts';
import type { Attack } from '../attack.ts';
import type { Attempt } from '../attempt.ts';
import { type Plan, settledBefore } from '../plans.ts';

/** Tries in a batch that lasts as long as the gateway's timeout for the facilitator. */
const SLOW = 50;

const nowhere = (): string => `0x${randomBytes(32).toString('hex')}`;

type Fault = SettleFault | ((attempt: Attempt, payment: PaymentPayload) => SettleFault);

const planOf = (fault: Fault, attempt: Attempt): Plan => ({
  settle: (payment) => (typeof fault === 'function' ? fault(attempt, payment) : fault),
});

const faulty = (name: string, fault: Fault, more: Partial<Attack> = {}): Attack => ({
  name,
  right: 'failed',
  waits: true,
  attempt: (attempt) => attempt.buy(attempt.post(), planOf(fault, attempt)),
  ...more,
});

/** The client pays a second time when the response is a new 402. */
const paidAgain = (name: string, fault: Fault): Attack => ({
  name,
  right: 'failed',
  waits: true,
  attempt: async (attempt) => {
    const what = attempt.post();
    const answer = await attempt.buy(what, planOf(fault, attempt));
    if (answer.isWhole && answer.status === 402) await attempt.buy(what);
  },
});

const changed = (change: (settled: SettleResponse) => SettleResponse): SettleFault => ({
  broadcast: true,
  answer: (settled) => change(settled as SettleResponse),
});

const after = (answer: SettleFault['answer']): SettleFault => ({ broadcast: true, answer });
const before = (answer: SettleFault['answer']): SettleFault => ({ broadcast: false, answer });

const unfunded = changed(({ network }) => ({
  ...{ success: false, errorReason: 'insufficient_funds', transaction: '', network },
}));

/** Claims a transaction of the facilitator that paid for something else. */
const foreign: Fault = ({ world }) => {
  const { broadcasts } = world.facilitator;
  return onlyClaimed(broadcasts.at(-1) ?? nowhere());
};

/** Returns `settlement_pending` once and the result on the second call, as the official facilitator may. */
const pendingOnce: Fault = ({ world }, payment) => ({
  broadcast: true,
  answer: (settled) => {
    world.facilitator.plans.set(payment, { settle: () => before(() => settled as SettleResponse) });
    return { ...(settled as SettleResponse), success: false, errorReason: 'settlement_pending' };
  },
});

export const SETTLE_FAULTS: readonly Attack[] = [
  faulty('settle: 500 after the broadcast', after('error')),
  faulty('settle: the connection is reset after the broadcast', after('reset')),
  faulty('settle: HTML after the broadcast', after('garbage')),
  faulty('settle: a redirect after the broadcast', after('redirect')),
  faulty('settle: no answer after the broadcast', after('hang'), { atOnce: SLOW }),
  faulty(
    'settle: the answer comes three seconds late',
    settledBefore(() => sleep(3_000)),
  ),
  faulty('settle: `settlement_pending` first, then the true answer', pendingOnce),
  faulty('settle: `settlement_pending` after the broadcast, and nothing else', settlementPending),
  faulty('settle: `nonce_already_used` after its own broadcast', nonceAlreadyUsed),
  faulty('settle: `insufficient_funds`, and it has settled', unfunded),
  faulty('settle: 500 before a broadcast', before('error')),
  faulty('settle: the connection is reset before a broadcast', before('reset')),
  faulty('settle: HTML before a broadcast', before('garbage')),
  faulty('settle: no answer and no broadcast', before('hang'), { atOnce: SLOW }),
  faulty('settle: success without a transaction', onlyClaimed('')),
  faulty('settle: success with a transaction that is not there', () => onlyClaimed(nowhere())),
  faulty("settle: success with another payment's transaction, nothing sent", foreign),
  faulty('settle: success, another transaction is named', () => anotherTransaction(nowhere())),
  faulty(
    'settle: success for another payer',
    changed((settled) => ({ ...settled, payer: `0x${randomBytes(20).toString('hex')}` })),
  ),
  faulty(
    'settle: success on another chain',
    changed((settled) => ({ ...settled, network: 'eip155:1' })),
  ),
  paidAgain('settle: 500 after the broadcast; who is asked to pays again', after('error')),
  paidAgain('settle: reset after the broadcast; who is asked to pays again', after('reset')),
  paidAgain('settle: `settlement_pending`; who is asked to pays again', settlementPending),
  paidAgain('settle: `nonce_already_used`; who is asked to pays again', nonceAlreadyUsed),
];
