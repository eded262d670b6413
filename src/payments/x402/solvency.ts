import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { Metrics } from '../../observability/metrics.ts';
import type { Chain } from './chain.ts';
import type { Payment } from './payment.ts';
import type { Exposure, Reservations } from './reservations.ts';

const TIMEOUT_MS = 3_000;
const POLL_MS = 50;

/** Facilitators also answer this when their own wallet lacks gas, because nodes use the same words for both (R23). */
export const LACKS_BALANCE = 'invalid_exact_evm_insufficient_balance';
/** Recorded instead of `LACKS_BALANCE` if the payer is solvent. The function x402_exposure names it, too. */
export const FACILITATOR_LACKS_GAS = 'facilitator_lacks_gas';

interface SolvencyParts {
  readonly reservations: Reservations;
  readonly chain: Chain;
}

/**
 * Whether the payer's balance covers this payment and earlier unsettled ones (R21b). A payment that has left the wallet
 * but is still in the sum counts twice. So both are read again while the sum changes or a payment is settling.
 */
export async function isSolvent(
  { chain, reservations }: SolvencyParts,
  payment: Pick<Payment, 'claim'> & { readonly id?: string },
  before?: Exposure,
): Promise<boolean> {
  const { payer, amount } = payment.claim;
  let { unsettled } = before ?? (await reservations.exposure(payment));
  for (const giveUpAt = performance.now() + TIMEOUT_MS; ; await sleep(POLL_MS)) {
    const balance = await chain.balanceOf(payer);
    if (balance >= unsettled + amount) return true;
    const now = await reservations.exposure(payment);
    if (now.unsettled === unsettled && now.settling === 0n) return false;
    if (performance.now() >= giveUpAt) return false;
    unsettled = now.unsettled;
  }
}

export function reportLackOfGas(
  metrics: Metrics,
  log: FastifyBaseLogger,
  facts: { readonly payment?: string; readonly detail: string },
): void {
  metrics.facilitatorLackedGas();
  log.error(
    facts,
    "the facilitator refused a payment that the payer's balance covers: the wallet of the facilitator probably lacks gas. Ask its operator to add gas",
  );
}
