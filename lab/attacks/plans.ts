import type { PaymentPayload, SettleResponse } from '@x402/core/types';
import type { FaultSource, SettleFault, VerifyFault } from '../../test/support/facilitator-faults.ts';

type Told<Fault> = (payment: PaymentPayload) => Fault | undefined | Promise<Fault | undefined>;

/** What the facilitator does at the first verification and the first settlement of a payment. */
export interface Plan {
  readonly verify?: Told<VerifyFault>;
  readonly settle?: Told<SettleFault>;
}

/** The authorization's nonce identifies a payment even if other fields differ. */
export const nonceOf = (payment: PaymentPayload): string =>
  String((payment.payload as { authorization?: { nonce?: string } }).authorization?.nonce).toLowerCase();

/** Faults by payment, so that concurrent payments can each have their own. */
export class Plans implements FaultSource {
  readonly #verify = new Map<string, Told<VerifyFault>>();
  readonly #settle = new Map<string, Told<SettleFault>>();

  set(payment: PaymentPayload, { verify, settle }: Plan): void {
    if (verify) this.#verify.set(nonceOf(payment), verify);
    if (settle) this.#settle.set(nonceOf(payment), settle);
  }

  nextVerify(payment: PaymentPayload) {
    return take(this.#verify, payment)?.(payment);
  }

  nextSettle(payment: PaymentPayload) {
    return take(this.#settle, payment)?.(payment);
  }
}

function take<Fault>(plans: Map<string, Told<Fault>>, payment: PaymentPayload): Told<Fault> | undefined {
  const nonce = nonceOf(payment);
  const plan = plans.get(nonce);
  plans.delete(nonce);
  return plan;
}

/** Settles, runs `then`, and only then responds. */
export const settledBefore = (then: () => Promise<unknown>): SettleFault => ({
  broadcast: true,
  answer: async (settled) => {
    await then();
    return settled as SettleResponse;
  },
});
