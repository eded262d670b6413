import type { PaymentRequired, PaymentRequirements } from '@x402/core/types';
import { canonicalize } from '../../lib/canonical-json.ts';
import { TRANSFER_TYPES } from '../../payments/x402/signed-types.ts';
import { type ApiResult, readJson } from './api.ts';
import { decodeJson, encodeJson, toHex } from './digest.ts';
import { UntrustedError } from './errors.ts';
import type { Wallet } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { type Metadata, timeOf } from './trusted-metadata.ts';

const MAX_TIMEOUT_SECONDS = 600;
/** Any other member of `extra` could change the signed data. */
const EXTRA: ReadonlySet<string> = new Set(['name', 'version']);
const PAYMENT_IDENTIFIER = 'payment-identifier';
/** How the service declares that it requires a payment identifier. */
const DECLARED = {
  info: { required: true },
  schema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: {
      required: { type: 'boolean' },
      id: { type: 'string', minLength: 16, maxLength: 128, pattern: '^[a-zA-Z0-9_-]+$' },
    },
    required: ['required'],
  },
};

interface Expected {
  readonly metadata: Metadata;
  readonly amountMicroUsd: bigint;
  readonly path: string;
  /** The payee of a quote, which may be retiring by now (R45). */
  readonly quotedPayee?: string;
}

/** Requires every field of the only offer to match the signed metadata (R37). @throws UntrustedError */
export function checkChallenge(challenge: PaymentRequired, expected: Expected): PaymentRequirements {
  const { metadata, amountMicroUsd, path } = expected;
  const { x402Version, accepts, resource } = challenge;
  if (x402Version !== 2 || !Array.isArray(accepts) || accepts.length !== 1) {
    throw mismatchError('malformed', "The service's 402 challenge is not x402 version 2 with exactly one offer.");
  }
  const { scheme, network, asset, amount, payTo, maxTimeoutSeconds, extra } = accepts[0] as PaymentRequirements;
  const { payment } = metadata;
  if (resource?.url !== metadata.service.origin + path) {
    throw mismatchError(
      'wrong_origin',
      `The service asks for payment for ${resource?.url}, which is not this request.`,
    );
  }
  if (scheme !== 'exact')
    throw mismatchError('wrong_scheme', `The service asks for payment by the scheme ${scheme}, not by exact.`);
  if (network !== payment.network)
    throw mismatchError(
      'wrong_network',
      `The service asks for payment on ${network}, but its signed metadata names ${payment.network}.`,
    );
  if (!isSameAddress(asset, payment.asset.address)) {
    throw mismatchError(
      'wrong_asset',
      `The service asks for payment in the token ${asset}, but its signed metadata names ${payment.asset.address}.`,
    );
  }
  const { decimals, name } = payment.asset;
  if (decimals !== 6) {
    throw mismatchError('wrong_asset', `payment.asset.decimals in the signed metadata is ${decimals}, not 6.`);
  }
  checkPayee(metadata, payTo, expected.quotedPayee);
  // The metadata has no domain version; a wrong one only makes an invalid signature.
  const hasDomain = extra?.name === name && typeof extra?.version === 'string';
  if (!hasDomain || !Object.keys(extra).every((key) => EXTRA.has(key))) {
    throw mismatchError(
      'wrong_domain',
      'extra of the challenge must hold only a version and the token name of the signed metadata.',
    );
  }
  if (amount !== String(amountMicroUsd)) {
    throw mismatchError(
      'wrong_price',
      `The service asks for ${amount} micro-USD, but this request costs ${amountMicroUsd} micro-USD.`,
    );
  }
  if (!Number.isInteger(maxTimeoutSeconds) || maxTimeoutSeconds < 1 || maxTimeoutSeconds > MAX_TIMEOUT_SECONDS) {
    throw mismatchError(
      'wrong_timeout',
      `The service asks for a payment that is valid for ${maxTimeoutSeconds} s, but only 1 to ${MAX_TIMEOUT_SECONDS} s are allowed.`,
    );
  }
  return { scheme, network, asset, amount, payTo, maxTimeoutSeconds, extra };
}

export const mismatchError = (reason: string, message: string): UntrustedError =>
  new UntrustedError(reason, `${message} Ask the operator of the service. Nothing was signed.`);

export function currentPayee({ payment }: Pick<Metadata, 'payment'>): string {
  const payee = payment.payees.find(({ status }) => status === 'current');
  if (!payee) throw mismatchError('wrong_payee', 'payment.payees in the signed metadata has no current payee.');
  return payee.address;
}

/** Accepts the current payee, or the quote's payee while it is retiring. @throws UntrustedError */
export function checkPayee(metadata: Metadata, payTo: string, quotedPayee?: string): void {
  const payee = metadata.payment.payees.find(({ address }) => isSameAddress(address, payTo));
  const isRetiring =
    payee?.status === 'retiring' && (payee.validUntil === null || timeOf(payee.validUntil) > Date.now());
  const mayRetire = quotedPayee !== undefined && isSameAddress(quotedPayee, payTo);
  if (payee?.status !== 'current' && !(isRetiring && mayRetire)) {
    throw mismatchError(
      'wrong_payee',
      `The service asks to pay ${payTo}, but its signed metadata does not list this payee as current.`,
    );
  }
}

const isSameAddress = (one: unknown, other: unknown): boolean =>
  typeof one === 'string' && typeof other === 'string' && one.toLowerCase() === other.toLowerCase();

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
      throw mismatchError('malformed', 'The service answered an unpaid request without asking for payment.');
    return { response, error };
  });
}

function decodeChallenge(header: string): PaymentRequired {
  try {
    return decodeJson(header);
  } catch {
    throw mismatchError('malformed', 'The payment-required header of the service is not a valid x402 challenge.');
  }
}

/** Signs only the checked offer, the resource's URL and a new payment identifier. */
export async function signPayment(
  wallet: Wallet,
  challenge: PaymentRequired,
  offer: PaymentRequirements,
  request: Pick<PendingPurchase, 'kind' | 'baseUrl' | 'target' | 'body'>,
  nowMs = Date.now(),
): Promise<PendingPurchase> {
  if (!isSame(challenge.extensions?.[PAYMENT_IDENTIFIER], DECLARED)) {
    throw mismatchError(
      'malformed',
      'The challenge lacks the payment-identifier extension, so a lost response could not be fetched again.',
    );
  }
  const identifier = `pay_${crypto.randomUUID()}`;
  const payload = {
    x402Version: 2,
    payload: await signTransfer(wallet, offer, nowMs),
    extensions: { [PAYMENT_IDENTIFIER]: { ...DECLARED, info: { ...DECLARED.info, id: identifier } } },
    resource: { url: challenge.resource.url },
    accepted: offer,
  };
  return {
    ...request,
    flow: 'direct',
    identifier,
    method: 'POST',
    headers: { 'content-type': 'application/json', 'payment-signature': encodeJson(payload) },
    maxMicroUsd: offer.amount,
    expiresAt: Number(payload.payload.authorization.validBefore),
  };
}

/** One transfer of USDC (EIP-3009), in the form of the scheme `exact` of x402. */
async function signTransfer(wallet: Wallet, offer: PaymentRequirements, nowMs: number) {
  const { network, asset, amount, payTo, maxTimeoutSeconds, extra } = offer;
  const authorization = {
    from: wallet.address,
    to: lowerCase(payTo),
    value: amount,
    validAfter: '0',
    validBefore: String(Math.floor(nowMs / 1000) + maxTimeoutSeconds),
    nonce: toHex(crypto.getRandomValues(new Uint8Array(32))),
  };
  const signature = await wallet.signTypedData({
    domain: {
      name: String(extra.name),
      version: String(extra.version),
      chainId: Number(network.split(':')[1]),
      verifyingContract: lowerCase(asset),
    },
    types: TRANSFER_TYPES,
    primaryType: 'TransferWithAuthorization',
    message: {
      ...authorization,
      value: BigInt(amount),
      validAfter: 0n,
      validBefore: BigInt(authorization.validBefore),
    },
  });
  return { authorization, signature };
}

/** Wallets refuse an address in mixed case whose checksum is wrong. */
const lowerCase = (address: string) => address.toLowerCase() as Wallet['address'];

function isSame(one: unknown, other: object): boolean {
  try {
    return canonicalize(one as object) === canonicalize(other);
  } catch {
    return false;
  }
}
