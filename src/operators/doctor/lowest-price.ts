import type { Catalog } from '../../config/catalog.ts';
import { currentPayee } from '../../config/payees.ts';
import type { X402Config } from '../../config/x402-settings.ts';
import { formatUsd } from '../../lib/money.ts';
import { serviceId } from '../../lib/service-words.ts';
import { makeOffer } from '../../payments/x402/challenge.ts';
import { priceMicroUsd } from '../../speech/price.ts';
import { type Finding, fault } from './check.ts';
import { member, type ProbeResponse } from './exchange.ts';

const ONE_USDC = 1_000_000n;

/**
 * A facilitator with a minimum amount refuses a payment below it for another reason than a larger one. Both are signed
 * by new keys, whose wallets are empty.
 */
export async function refusesLowestPrice(
  verify: (payment: object) => Promise<ProbeResponse>,
  x402: X402Config,
  { models }: Catalog,
): Promise<Finding | undefined> {
  const prices = models.map(({ ratePicoUsd }) => priceMicroUsd(1, ratePicoUsd));
  const lowest = prices.reduce((least, price) => (price < least ? price : least), ONE_USDC);
  const refusal = await verify(await unfundedPayment(x402, lowest));
  const usual = await verify(await unfundedPayment(x402, ONE_USDC));
  const [reason, otherReason] = [refusal, usual].map(reasonOf);
  if (reason === otherReason || [refusal, usual].some(({ status }) => status >= 500 || status === 429))
    return undefined;
  return fault(
    'The facilitator seems to have a minimum payment: it refuses a test payment of the lowest price, ' +
      `${formatUsd(lowest)} USDC, with the reason ${reason}, and one of 1 USDC with another reason.`,
    'Use a facilitator without a minimum. Otherwise short texts can be paid only from prepaid balances.',
  );
}

function reasonOf({ status, json }: ProbeResponse): string {
  const named = [member(json, 'invalidReason'), member(json, 'errorType'), member(json, 'error')];
  return serviceId(String(named.find((each) => typeof each === 'string') ?? `status_${status}`));
}

async function unfundedPayment({ asset, payees }: X402Config, amount: bigint) {
  const [{ x402Client }, { ExactEvmScheme }, { generatePrivateKey, privateKeyToAccount }] = await Promise.all([
    import('@x402/core/client'),
    import('@x402/evm/exact/client'),
    import('viem/accounts'),
  ]);
  const offer = makeOffer(asset, amount, currentPayee(payees).address);
  const payer = new ExactEvmScheme(privateKeyToAccount(generatePrivateKey()));
  const paymentPayload = await new x402Client()
    .register(asset.network, payer)
    .setSpendControls(false)
    .createPaymentPayload({ x402Version: 2, resource: { url: 'https://doctor.invalid/' }, accepts: [offer] });
  return { x402Version: 2, paymentPayload, paymentRequirements: offer };
}
