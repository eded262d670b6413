import { randomBytes } from 'node:crypto';
import type { PaymentPayload } from '@x402/core/types';
import { wallet } from '../../../test/support/chain.ts';
import { invalid, onlyClaimed, type VerifyFault } from '../../../test/support/facilitator-faults.ts';
import type { Attack } from '../attack.ts';
import type { Attempt } from '../attempt.ts';
import type { Plan } from '../plans.ts';

const payerOf = ({ payload }: PaymentPayload): string =>
  (payload as { authorization: { from: string } }).authorization.from;

const yes = (payment: PaymentPayload): VerifyFault => ({ isValid: true, payer: payerOf(payment) });

const faulty = (name: string, verify: NonNullable<Plan['verify']>, more: Partial<Attack> = {}): Attack => ({
  name,
  right: 'failed',
  attempt: (attempt) => attempt.buy(attempt.post(), { verify }),
  ...more,
});

/** The attacker signs a payment in the name of the try's payer. */
async function forged(attempt: Attempt, plan: Plan): Promise<void> {
  const what = attempt.post();
  const attacker = await wallet(attempt.world.chain.client);
  const payment = await attempt.sign(await attempt.challenge(what), plan, attacker);
  const { authorization } = payment.payload as { authorization: object };
  const { address: from } = attempt.payer;
  await attempt.send(
    attempt.paid(what, { ...payment, payload: { ...payment.payload, authorization: { ...authorization, from } } }),
  );
}

export const VERIFY_FAULTS: readonly Attack[] = [
  { name: 'verify: a bad signature', right: 'refused', attempt: (attempt) => forged(attempt, {}) },
  { name: 'verify: yes to a bad signature', right: 'failed', attempt: (attempt) => forged(attempt, { verify: yes }) },
  {
    name: 'verify and settle: yes to a bad signature, nothing sent',
    right: 'failed',
    attempt: (attempt) =>
      forged(attempt, { verify: yes, settle: () => onlyClaimed(`0x${randomBytes(32).toString('hex')}`) }),
  },
  faulty('verify: yes for another payer', () => ({ isValid: true, payer: `0x${randomBytes(20).toString('hex')}` })),
  faulty('verify: no to a payment that is in order', () => invalid('invalid_exact_evm_payload_signature')),
  faulty('verify: 500', () => 'error'),
  faulty('verify: HTML', () => 'garbage'),
  faulty('verify: the connection is reset', () => 'reset'),
  faulty('verify: a redirect', () => 'redirect'),
  faulty('verify: no answer', () => 'hang', { atOnce: 50 }),
];
