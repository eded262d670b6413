import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from '@x402/core/http';
import type { PaymentRequired, PaymentRequirements } from '@x402/core/types';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { declarePaymentIdentifierExtension, PAYMENT_IDENTIFIER } from '@x402/extensions/payment-identifier';
import { canonicalize } from '../lib/canonical-json.ts';
import type { Told } from './api.ts';
import { SpeechgateError, UntrustedError } from './errors.ts';
import type { Wallet } from './payment-way.ts';
import { read } from './reading.ts';
import type { TrustedMetadata } from './trusted-metadata.ts';

/** The challenge of a 402 that answers a request without payment. @throws ServiceError when it is answered otherwise */
export async function readChallenge(
  signal: AbortSignal | undefined,
  ask: (signal: AbortSignal) => Promise<Told<unknown>>,
): Promise<PaymentRequired> {
  return read(signal, { accepts: [{}], extensions: {} }, async (signal): Promise<Told<PaymentRequired>> => {
    const { response, error } = await ask(signal);
    const header = response.status === 402 ? response.headers.get('payment-required') : null;
    if (header !== null) return { response, data: decodeChallenge(header) };
    if (response.ok) throw new UntrustedError('malformed', 'The service asks for no payment.');
    return { response, error };
  });
}

function decodeChallenge(header: string): PaymentRequired {
  try {
    return decodePaymentRequiredHeader(header);
  } catch {
    throw new UntrustedError('malformed', 'The challenge can not be read.');
  }
}

/** A payment that was signed. */
export interface SignedPayment {
  /** Of `payment-signature`. */
  readonly header: string;
  /** Unix seconds until which it can be settled. */
  readonly validBefore: number;
}

/**
 * Signs a challenge by the official client: nothing of it but the offer, the address of its resource and our own identifier.
 * @param offer its entry, which was checked
 * @param identifier 16 to 128 characters of A-Z a-z 0-9 _ -
 */
export async function signPayment(
  wallet: Wallet,
  challenge: PaymentRequired,
  offer: PaymentRequirements,
  identifier: string,
): Promise<SignedPayment> {
  const client = new x402Client()
    .register(offer.network, new ExactEvmScheme(wallet))
    // Asset and amount were held against the signed metadata and the caller's own caps.
    .setSpendControls(false);
  const declared = declarePaymentIdentifierExtension(true);
  if (!isSame(challenge.extensions?.[PAYMENT_IDENTIFIER], declared)) {
    throw new UntrustedError(
      'malformed',
      'The challenge takes no payment identifier of our form: a lost answer could not be asked for. Nothing was signed.',
    );
  }
  const payload = await client.createPaymentPayload({
    x402Version: 2,
    resource: { url: challenge.resource.url },
    accepts: [offer],
    extensions: { [PAYMENT_IDENTIFIER]: { ...declared, info: { ...declared.info, id: identifier } } },
  });
  const { validBefore } = payload.payload.authorization as { validBefore: string };
  return { header: encodePaymentSignatureHeader(payload), validBefore: Number(validBefore) };
}

function isSame(one: unknown, other: object): boolean {
  try {
    return canonicalize(one as object) === canonicalize(other);
  } catch {
    return false;
  }
}

/** What a wallet's payments need. @throws SpeechgateError without pinned keys */
export function required(metadata: TrustedMetadata | undefined): TrustedMetadata {
  if (metadata) return metadata;
  throw new SpeechgateError('A wallet pays only a service whose key was pinned. Give `trust`.');
}

/** Of a payment: what the service knows it by. */
export const newIdentifier = (): string => `pay_${crypto.randomUUID()}`;
