import { randomBytes } from 'node:crypto';
import { x402Client } from '@x402/core/client';
import type { PaymentPayload, PaymentRequired, PaymentRequirements } from '@x402/core/types';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import type { Test } from 'tap';
import type { Address, LocalAccount } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import type { SignedAuthorization, TestChain } from './chain.ts';
import { FacilitatorFaults } from './facilitator-faults.ts';
import { type FaultyFacilitator, type FaultyFacilitatorOptions, startFaultyFacilitator } from './faulty-facilitator.ts';

const ONE_ETHER = 10n ** 18n;

/** A facilitator on the test's chain, with faults to switch on. Closed by the caller, or with the test. */
export async function testFacilitator(
  t: Pick<Test, 'teardown'>,
  chain: TestChain,
  options: Partial<FaultyFacilitatorOptions> = {},
): Promise<FaultyFacilitator & { readonly faults: FacilitatorFaults }> {
  const privateKey = generatePrivateKey();
  await chain.client.setBalance({ address: privateKeyToAccount(privateKey).address, value: ONE_ETHER });
  const faults = new FacilitatorFaults();
  const { rpcUrl, chainId } = chain;
  const facilitator = await startFaultyFacilitator({ rpcUrl, chainId, privateKey, faults, ...options });
  t.teardown(facilitator.close);
  return { ...facilitator, faults };
}

/** What a resource that costs `amount` micro-USDC asks for. */
export function requirements(chain: TestChain, payTo: Address, amount: bigint): PaymentRequirements {
  return {
    scheme: 'exact',
    network: `eip155:${chain.chainId}`,
    amount: String(amount),
    asset: chain.asset,
    payTo,
    maxTimeoutSeconds: 120,
    extra: { name: 'USD Coin', version: '2' },
  };
}

/** The payload that the official client makes of a challenge with this one offer. */
export function pay(payer: LocalAccount, offer: PaymentRequirements): Promise<PaymentPayload> {
  const client = new x402Client().register(offer.network, new ExactEvmScheme(payer));
  const challenge: PaymentRequired = {
    x402Version: 2,
    resource: { url: `http://127.0.0.1/${randomBytes(4).toString('hex')}` },
    accepts: [offer],
  };
  return client.createPaymentPayload(challenge);
}

/** The payload that carries an authorization as it is, however wrong. */
export function payloadOf(
  offer: PaymentRequirements,
  { authorization, signature }: SignedAuthorization,
): PaymentPayload {
  const { value, validAfter, validBefore, ...rest } = authorization;
  const numbers = { value: String(value), validAfter: String(validAfter), validBefore: String(validBefore) };
  return { x402Version: 2, accepted: offer, payload: { signature, authorization: { ...rest, ...numbers } } };
}
