import type { PaymentRequired, PaymentRequirements } from '@x402/core/types';
import { UntrustedError } from './errors.ts';
import { type Metadata, timeOf } from './trusted-metadata.ts';

const MAX_TIMEOUT_SECONDS = 600;
/** Any other member of `extra` could change the signed data. */
const EXTRA: ReadonlySet<string> = new Set(['name', 'version']);

interface Expected {
  readonly metadata: Metadata;
  readonly amountMicroUsd: bigint;
  readonly path: string;
  /** The payee of a quote, which may be retiring by now (R45). */
  readonly quotedPayee?: string;
}

/** Requires every field of the only offer to match the signed metadata. @throws UntrustedError */
export function checkChallenge(challenge: PaymentRequired, expected: Expected): PaymentRequirements {
  const { metadata, amountMicroUsd, path } = expected;
  const { x402Version, accepts, resource } = challenge;
  if (x402Version !== 2 || !Array.isArray(accepts) || accepts.length !== 1) {
    throw new UntrustedError('malformed', 'The challenge is not x402 version 2 with exactly one offer.');
  }
  const { scheme, network, asset, amount, payTo, maxTimeoutSeconds, extra } = accepts[0] as PaymentRequirements;
  const { payment } = metadata;
  if (resource?.url !== metadata.service.origin + path) {
    throw new UntrustedError('wrong_origin', `The challenge is for ${resource?.url}, not for this request.`);
  }
  if (scheme !== 'exact')
    throw new UntrustedError('wrong_scheme', `scheme in the challenge is ${scheme} instead of exact.`);
  if (network !== payment.network)
    throw new UntrustedError('wrong_network', `network in the challenge is ${network} instead of ${payment.network}.`);
  if (!isSameAddress(asset, payment.asset.address)) {
    throw new UntrustedError('wrong_asset', `asset in the challenge is ${asset} instead of ${payment.asset.address}.`);
  }
  const { decimals, name } = payment.asset;
  if (decimals !== 6) {
    throw new UntrustedError('wrong_asset', `The token has ${decimals} decimals instead of 6.`);
  }
  checkPayee(metadata, payTo, expected.quotedPayee);
  // The metadata has no domain version; a wrong one only makes an invalid signature.
  const hasDomain = extra?.name === name && typeof extra?.version === 'string';
  if (!hasDomain || !Object.keys(extra).every((key) => EXTRA.has(key))) {
    throw new UntrustedError('wrong_domain', 'extra in the challenge does not match the token in the signed metadata.');
  }
  if (amount !== String(amountMicroUsd)) {
    throw new UntrustedError('wrong_price', `amount in the challenge is ${amount} instead of ${amountMicroUsd}.`);
  }
  if (!Number.isInteger(maxTimeoutSeconds) || maxTimeoutSeconds < 1 || maxTimeoutSeconds > MAX_TIMEOUT_SECONDS) {
    throw new UntrustedError(
      'wrong_timeout',
      `maxTimeoutSeconds in the challenge is ${maxTimeoutSeconds}, which is not from 1 to ${MAX_TIMEOUT_SECONDS}.`,
    );
  }
  return { scheme, network, asset, amount, payTo, maxTimeoutSeconds, extra };
}

export function currentPayee({ payment }: Metadata): string {
  const payee = payment.payees.find(({ status }) => status === 'current');
  if (!payee) throw new UntrustedError('wrong_payee', 'The metadata has no current payee.');
  return payee.address;
}

/** Accepts the current payee, or the quote's payee while it is retiring. @throws UntrustedError */
export function checkPayee(metadata: Metadata, payTo: string, quotedPayee?: string): void {
  const payee = metadata.payment.payees.find(({ address }) => isSameAddress(address, payTo));
  const isRetiring =
    payee?.status === 'retiring' && (payee.validUntil === null || timeOf(payee.validUntil) > Date.now());
  const mayRetire = quotedPayee !== undefined && isSameAddress(quotedPayee, payTo);
  if (payee?.status !== 'current' && !(isRetiring && mayRetire)) {
    throw new UntrustedError('wrong_payee', `payTo is ${payTo}, which is not a valid payee in the signed metadata.`);
  }
}

const isSameAddress = (one: unknown, other: unknown): boolean =>
  typeof one === 'string' && typeof other === 'string' && one.toLowerCase() === other.toLowerCase();
