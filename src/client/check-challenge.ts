import type { PaymentRequired, PaymentRequirements } from '@x402/core/types';
import { UntrustedError } from './errors.ts';
import { type Metadata, timeOf } from './verify-metadata.ts';

/** The longest that an authorization is signed for, in seconds. */
const MOST_TIMEOUT_SECONDS = 600;
/** What may stand in `extra`: anything else could change what is signed. */
const EXTRA: ReadonlySet<string> = new Set(['name', 'version']);

/** What a challenge has to ask for. */
export interface Expected {
  readonly metadata: Metadata;
  /** By the signed rates, or the amount to deposit. */
  readonly amountMicroUsd: bigint;
  /** The path that was asked. */
  readonly path: string;
  /** Where the challenge is that of a quote: its payee, which may retire by now (R45). */
  readonly quotedPayee?: string;
}

/**
 * The one entry of a challenge that may be signed: everything in it is what the signed metadata says, and nothing else is in
 * it.
 * @throws UntrustedError
 */
export function checkChallenge(challenge: PaymentRequired, expected: Expected): PaymentRequirements {
  const { metadata, amountMicroUsd, path } = expected;
  const { x402Version, accepts, resource } = challenge;
  if (x402Version !== 2 || !Array.isArray(accepts) || accepts.length !== 1) {
    throw new UntrustedError('malformed', 'The challenge is not one of x402 version 2 with one offer.');
  }
  const offer = accepts[0] as PaymentRequirements;
  const { network, asset } = metadata.payment;
  if (resource?.url !== metadata.service.origin + path) {
    throw new UntrustedError('wrong_origin', `The challenge is for ${resource?.url}.`);
  }
  if (offer.scheme !== 'exact')
    throw new UntrustedError('wrong_scheme', `The challenge has the scheme ${offer.scheme}.`);
  if (offer.network !== network) throw new UntrustedError('wrong_network', `The challenge names ${offer.network}.`);
  if (!isSameAddress(offer.asset, asset.address)) {
    throw new UntrustedError('wrong_asset', `The challenge asks for the token ${offer.asset}.`);
  }
  if (asset.decimals !== 6) {
    throw new UntrustedError('wrong_asset', `The token has ${asset.decimals} decimals: its units are no micro-USD.`);
  }
  checkPayee(metadata, offer.payTo, expected.quotedPayee);
  checkDomain(offer, asset.name);
  if (offer.amount !== String(amountMicroUsd)) {
    throw new UntrustedError('wrong_price', `The challenge asks for ${offer.amount} instead of ${amountMicroUsd}.`);
  }
  const { maxTimeoutSeconds } = offer;
  if (!Number.isInteger(maxTimeoutSeconds) || maxTimeoutSeconds < 1 || maxTimeoutSeconds > MOST_TIMEOUT_SECONDS) {
    throw new UntrustedError('wrong_timeout', `The challenge wants to be valid for ${maxTimeoutSeconds} s.`);
  }
  const { scheme, network: chain, asset: token, amount, payTo, extra } = offer;
  return { scheme, network: chain, asset: token, amount, payTo, maxTimeoutSeconds, extra };
}

/** The payee that prepaid signatures, deposits and quotes name. */
export function currentPayee({ payment }: Metadata): string {
  const payee = payment.payees.find(({ status }) => status === 'current');
  if (!payee) throw new UntrustedError('wrong_payee', 'The metadata has no current payee.');
  return payee.address;
}

/** Whether a payee may be paid: the current one, or the quote's that retires. @throws UntrustedError */
export function checkPayee(metadata: Metadata, payTo: string, quotedPayee?: string): void {
  const payee = metadata.payment.payees.find(({ address }) => isSameAddress(address, payTo));
  const isRetiring =
    payee?.status === 'retiring' && (payee.validUntil === null || timeOf(payee.validUntil) > Date.now());
  const mayRetire = quotedPayee !== undefined && isSameAddress(quotedPayee, payTo);
  if (payee?.status !== 'current' && !(isRetiring && mayRetire)) {
    throw new UntrustedError('wrong_payee', `${payTo} is not the payee of the signed metadata.`);
  }
}

/** The token's EIP-712 domain. Its version is the token's own: a wrong one makes a signature that pays nothing. */
function checkDomain({ extra }: PaymentRequirements, name: string): void {
  const { version } = extra ?? {};
  if (extra?.name !== name || typeof version !== 'string' || !Object.keys(extra).every((key) => EXTRA.has(key))) {
    throw new UntrustedError('wrong_domain', "The challenge's token domain is not that of the signed metadata.");
  }
}

const isSameAddress = (one: unknown, other: unknown): boolean =>
  typeof one === 'string' && typeof other === 'string' && one.toLowerCase() === other.toLowerCase();
