import { isDeepStrictEqual } from 'node:util';
import { PAYMENT_IDENTIFIER, paymentIdentifierSchema } from '@x402/extensions/payment-identifier';
import type { Asset } from '../../config/network.ts';
import { type Address, currentPayee, type Payee, payablePayees } from '../../config/payees.ts';
import { depositDiscovery, speechDiscovery } from './discovery.ts';

/** How long an authorization should be valid (R27). */
export const MAX_TIMEOUT_SECONDS = 120;

export interface Offer {
  readonly scheme: 'exact';
  readonly network: Asset['network'];
  readonly amount: string;
  readonly asset: Address;
  readonly payTo: Address;
  readonly maxTimeoutSeconds: number;
  readonly extra: { readonly name: string; readonly version: string };
}

export const makeOffer = (asset: Asset, amount: bigint, payTo: Address): Offer => ({
  scheme: 'exact',
  network: asset.network,
  amount: String(amount),
  asset: asset.address,
  payTo,
  maxTimeoutSeconds: MAX_TIMEOUT_SECONDS,
  extra: { name: asset.name, version: asset.version },
});

export interface PaymentTerms {
  readonly asset: Asset;
  readonly payees: readonly Payee[];
}

/** Offers that are accepted for the amount. The challenge names the first; retiring payees are still honoured (R45). */
export function offersFor({ asset, payees }: PaymentTerms, amountMicroUsd: bigint): [Offer, ...Offer[]] {
  const retiring = payablePayees(payees, new Date()).filter(({ status }) => status === 'retiring');
  const current = makeOffer(asset, amountMicroUsd, currentPayee(payees).address);
  return [current, ...retiring.map(({ address }) => makeOffer(asset, amountMicroUsd, address))];
}

/** Finds the offer that a payment accepted unchanged (R23, R74). */
export const findOffer = (offers: readonly Offer[], accepted: unknown): Offer | undefined =>
  offers.find((offer) => isDeepStrictEqual(offer, accepted));

export interface Challenge {
  readonly x402Version: 2;
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

export type Resource = Pick<Challenge, 'resource' | 'extensions'>;

export const identifierExtension = (id?: string) => ({
  info: { required: true, ...(id !== undefined && { id }) },
  schema: paymentIdentifierSchema,
});

const MAX_SERVICE_NAME = 32;

export const speechResource = (baseUrl: string, serviceName: string, method: 'GET' | 'POST'): Resource => ({
  resource: {
    url: `${baseUrl}/x402/tts`,
    description: 'Text to speech: the text spoken as an MP3.',
    mimeType: 'audio/mpeg',
    serviceName: serviceName.slice(0, MAX_SERVICE_NAME),
    tags: ['text-to-speech', 'speech', 'audio', 'tts'],
  },
  extensions: { [PAYMENT_IDENTIFIER]: identifierExtension(), bazaar: speechDiscovery(method) },
});

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

/** What an unpaid request gets in `PAYMENT-REQUIRED` (R27). */
export const makeChallenge = ({ resource, extensions }: Resource, offer: Offer, error: string): Challenge => ({
  x402Version: 2,
  error,
  resource,
  accepts: [offer],
  extensions,
});

export const encodeHeader = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64');

const AMOUNT = '@amount@';

/** Texts of challenges that differ only in their amount. */
export class ChallengeTemplate {
  readonly #body: readonly string[];
  /** Base64 of the whole 3-byte groups before the amount, the remaining bytes, and what follows the amount. */
  readonly #header: {
    readonly before: string;
    readonly rest: string;
    readonly after: string;
    readonly tails: string[];
  };

  constructor(make: (amount: string) => Challenge, enclose: (challenge: Challenge) => object) {
    const challenge = make(AMOUNT);
    this.#body = JSON.stringify(enclose(challenge)).split(AMOUNT);
    const [before = '', after = '', ...more] = JSON.stringify(challenge).split(AMOUNT);
    if (after === '' || more.length > 0) throw new Error('a challenge must contain its amount exactly once');
    const bytes = Buffer.from(before);
    const whole = bytes.length - (bytes.length % 3);
    const afterBytes = Buffer.from(after);
    this.#header = {
      before: bytes.subarray(0, whole).toString('base64'),
      // What surrounds the amount is ASCII: one byte per character.
      rest: bytes.subarray(whole).toString(),
      after,
      tails: [0, 1, 2].map((from) => afterBytes.subarray(from).toString('base64')),
    };
  }

  write(amount: string): { readonly header: string; readonly body: string } {
    const { before, rest, after, tails } = this.#header;
    const missing = (3 - ((rest.length + amount.length) % 3)) % 3;
    const middle = Buffer.from(rest + amount + after.slice(0, missing), 'latin1').toString('base64');
    return { header: before + middle + tails[missing], body: this.#body.join(amount) };
  }
}
