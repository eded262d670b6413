import { randomUUID } from 'node:crypto';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import { x402Client } from '@x402/fetch';
import type { LocalAccount } from 'viem';

/** The official x402 client for a wallet on the local chain. Each payment gets an identifier of its own. */
export function sandboxClient(payer: LocalAccount, chainId: number): x402Client {
  return new x402Client()
    .register(`eip155:${chainId}`, new ExactEvmScheme(payer))
    .onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions ?? {}, `sandbox_${randomUUID()}`);
    });
}
