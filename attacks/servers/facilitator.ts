import type { PaymentPayload, SettleResponse } from '@x402/core/types';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import type { FaultSource, SettleFault, VerifyFault } from '../../src/sandbox/facilitator/faults.ts';
import { type RunningFacilitator, startFacilitator } from '../../src/sandbox/local-facilitator.ts';
import type { Chain } from './chain.ts';

type Told<Fault> = (payment: PaymentPayload) => Fault | undefined | Promise<Fault | undefined>;

/** How the facilitator treats one payment: the first time that it is asked to verify and to settle it. */
export interface Plan {
  readonly verify?: Told<VerifyFault>;
  readonly settle?: Told<SettleFault>;
}

const ETHER = 10_000n * 10n ** 18n;

/** Of the authorization, whatever else a payment is. */
export const nonceOf = (payment: PaymentPayload): string =>
  String((payment.payload as { authorization?: { nonce?: string } }).authorization?.nonce).toLowerCase();

/** Faults by payment, so that many can be made at once. */
export class Plans implements FaultSource {
  readonly #verify = new Map<string, Told<VerifyFault>>();
  readonly #settle = new Map<string, Told<SettleFault>>();

  /** Has a payment treated so. */
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

/** The sandbox's facilitator, with faults by payment. */
export async function startPlannedFacilitator(chain: Chain): Promise<RunningFacilitator & { readonly plans: Plans }> {
  const privateKey = generatePrivateKey();
  await chain.client.setBalance({ address: privateKeyToAccount(privateKey).address, value: ETHER });
  const plans = new Plans();
  const { rpcUrl, chainId } = chain;
  return { ...(await startFacilitator({ rpcUrl, chainId, privateKey, faults: plans })), plans };
}

/** Settles, and answers once something else has happened. */
export const settledBefore = (then: () => Promise<unknown>): SettleFault => ({
  broadcast: true,
  answer: async (settled) => {
    await then();
    return settled as SettleResponse;
  },
});
