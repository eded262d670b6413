import { PAYMENT_IDENTIFIER, paymentIdentifierSchema } from '@x402/extensions/payment-identifier';
import { depositDiscovery, speechDiscovery } from './discovery.ts';
import type { Offer } from './offer.ts';

/** What a 402 asks for (x402 version 2, PaymentRequired; R27). */
export interface Challenge {
  readonly x402Version: 2;
  /** Why payment is required, or why the one that was sent is refused. */
  readonly error: string;
  readonly resource: {
    readonly url: string;
    readonly description: string;
    readonly mimeType: string;
    readonly serviceName: string;
    readonly tags: readonly string[];
  };
  readonly accepts: readonly Offer[];
  readonly extensions: Readonly<Record<string, object>>;
}

/** What the challenges, and the payments forwarded to the facilitator, of one operation have in common. */
export interface Resource {
  readonly resource: Challenge['resource'];
  readonly extensions: Challenge['extensions'];
}

/** The required Payment Identifier extension as a challenge declares it, or with the identifier as a payment carries it. */
export const identifierExtension = (id?: string) => ({
  info: { required: true, ...(id !== undefined && { id }) },
  schema: paymentIdentifierSchema,
});

/** Directories take service names of at most 32 characters. */
const MAX_SERVICE_NAME = 32;

export function speechResource(baseUrl: string, serviceName: string, method: 'GET' | 'POST'): Resource {
  return {
    resource: {
      url: `${baseUrl}/x402/tts`,
      description: 'Text to speech: the text spoken as an MP3.',
      mimeType: 'audio/mpeg',
      serviceName: serviceName.slice(0, MAX_SERVICE_NAME),
      tags: ['text-to-speech', 'speech', 'audio', 'tts'],
    },
    extensions: { [PAYMENT_IDENTIFIER]: identifierExtension(), bazaar: speechDiscovery(method) },
  };
}

export const depositResource = (baseUrl: string, serviceName: string): Resource => ({
  resource: {
    url: `${baseUrl}/x402/deposit`,
    description: "Deposit: credits the payer's prepaid balance. Not refundable.",
    mimeType: 'application/json',
    serviceName: serviceName.slice(0, MAX_SERVICE_NAME),
    tags: ['deposit', 'prepaid', 'text-to-speech'],
  },
  extensions: { [PAYMENT_IDENTIFIER]: identifierExtension(), bazaar: depositDiscovery() },
});

export const makeChallenge = ({ resource, extensions }: Resource, offer: Offer, error: string): Challenge => ({
  x402Version: 2,
  error,
  resource,
  accepts: [offer],
  extensions,
});

/** A JSON value as an x402 header carries it: standard, padded Base64. */
export const encodeHeader = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64');
