import { setTimeout as sleep } from 'node:timers/promises';
import type { Chain } from '../x402/chain.ts';
import type { Exposure } from '../x402/exposure.ts';
import type { Payment } from '../x402/payment.ts';
import type { Reservations } from '../x402/reservations.ts';

/** A payer's balance is read again when his other payments ended meanwhile, or while they are about to. */
const PATIENCE_MS = 3_000;
const POLL_MS = 50;

/**
 * Whether the payer's balance covers his earlier unsettled payments and this one (R21b). A payment that has left the
 * wallet, while the sum still holds it, would count twice: so both are read again when the sum has changed, and as long
 * as a payment is settling.
 * @param before the payer's exposure as it was read last
 * @throws RpcError when the chain can't be asked
 */
export async function isSolvent(
  { chain, reservations }: { readonly chain: Chain; readonly reservations: Reservations },
  payment: Payment,
  before: Exposure,
): Promise<boolean> {
  const { payer, amount } = payment.claim;
  let { unsettled } = before;
  for (const giveUpAt = performance.now() + PATIENCE_MS; ; await sleep(POLL_MS)) {
    const balance = await chain.balanceOf(payer);
    if (balance >= unsettled + amount) return true;
    const now = await reservations.exposure(payment);
    if (now.unsettled === unsettled && now.settling === 0) return false;
    if (performance.now() >= giveUpAt) return false;
    unsettled = now.unsettled;
  }
}
