import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from '@x402/core/http';
import type { PaymentRequired, PaymentRequirements } from '@x402/core/types';
import { canonicalize } from '../../lib/canonical-json.ts';
import type { ApiResult } from './api.ts';
import { SpeechgateError, UntrustedError } from './errors.ts';
import type { Wallet } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { readJson } from './read-json.ts';
import type { TrustedMetadata } from './trusted-metadata.ts';

/** Sends a request without payment and returns the challenge of its 402. @throws ServiceError for another error */
export async function readChallenge(
  signal: AbortSignal | undefined,
  send: (signal: AbortSignal) => Promise<ApiResult<unknown>>,
): Promise<PaymentRequired> {
  return readJson(signal, { accepts: [{}], extensions: {} }, async (signal): Promise<ApiResult<PaymentRequired>> => {
    const { response, error } = await send(signal);
    const header = response.status === 402 ? response.headers.get('payment-required') : null;
    if (header !== null) return { response, data: decodeChallenge(header) };
    if (response.ok)
      throw new UntrustedError('malformed', 'The service returned no 402 challenge to a request without payment.');
    return { response, error };
  });
}

function decodeChallenge(header: string): PaymentRequired {
  try {
    return decodePaymentRequiredHeader(header);
  } catch {
    throw new UntrustedError('malformed', 'The payment-required header is not a valid x402 challenge.');
  }
}

/** Signs only the checked offer, the resource's URL and a new payment identifier. */
export async function signPayment(
  wallet: Wallet,
  challenge: PaymentRequired,
  offer: PaymentRequirements,
  request: Pick<PendingPurchase, 'kind' | 'baseUrl' | 'target' | 'body'>,
): Promise<PendingPurchase> {
  // Loaded here: it takes longer than the start of a program that pays by card.
  const [{ x402Client }, { ExactEvmScheme }, { declarePaymentIdentifierExtension, PAYMENT_IDENTIFIER }] =
    await Promise.all([
      import('@x402/core/client'),
      import('@x402/evm/exact/client'),
      import('@x402/extensions/payment-identifier'),
    ]);
  const identifier = `pay_${crypto.randomUUID()}`;
  const client = new x402Client()
    .register(offer.network, new ExactEvmScheme(wallet))
    // Asset and amount were checked against the signed metadata and the caller's caps.
    .setSpendControls(false);
  const declared = declarePaymentIdentifierExtension(true);
  if (!isSame(challenge.extensions?.[PAYMENT_IDENTIFIER], declared)) {
    throw new UntrustedError(
      'malformed',
      'The challenge has no supported payment-identifier extension, so a lost response could not be retried.',
    );
  }
  const payload = await client.createPaymentPayload({
    x402Version: 2,
    resource: { url: challenge.resource.url },
    accepts: [offer],
    extensions: { [PAYMENT_IDENTIFIER]: { ...declared, info: { ...declared.info, id: identifier } } },
  });
  const { validBefore } = payload.payload.authorization as { validBefore: string };
  return {
    ...request,
    flow: 'direct',
    identifier,
    method: 'POST',
    headers: { 'content-type': 'application/json', 'payment-signature': encodePaymentSignatureHeader(payload) },
    maxMicroUsd: offer.amount,
    expiresAt: Number(validBefore),
  };
}

function isSame(one: unknown, other: object): boolean {
  try {
    return canonicalize(one as object) === canonicalize(other);
  } catch {
    return false;
  }
}

export function requireMetadata(metadata: TrustedMetadata | undefined): TrustedMetadata {
  if (metadata) return metadata;
  throw new SpeechgateError(
    '`trust` has no pinned keys. Pass the public keys that the operator gave you. Nothing was signed.',
  );
}
