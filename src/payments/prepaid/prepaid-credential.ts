import { createHash, timingSafeEqual } from 'node:crypto';
import type { Asset } from '../../config/network.ts';
import { type Address, type Payee, payablePayees } from '../../config/payees.ts';
import { canonicalQuery } from '../../lib/canonical-query.ts';
import { keccak256 } from '../../lib/keccak.ts';
import {
  compactFault,
  domainSeparator,
  type Message,
  recoverAddress,
  signingDigest,
  structHasher,
  withFullV,
} from '../../lib/wallet-signature.ts';
import { refused } from '../refusal.ts';
import type { Hex } from '../x402/envelope.ts';
import { PREPAID_SIGNING, PREPAID_TYPES, prepaidDomain } from '../x402/signed-types.ts';

export type PrepaidRequest = Message<typeof PREPAID_TYPES.PrepaidRequest>;

export const hashPrepaidRequest = structHasher('PrepaidRequest', PREPAID_TYPES.PrepaidRequest);

export interface PrepaidCredential {
  readonly account: Address;
  readonly nonce: string;
  /** Unix seconds, judged by the database's clock in the ledger. */
  readonly expiry: bigint;
  readonly maxAmountMicroUsd: bigint;
  /** In lower case with v 27 or 28, because a repetition may spell it differently (R67). */
  readonly signature: Hex;
}

export interface SignedRequest {
  readonly method: string;
  readonly path: string;
  readonly bodyHash: Uint8Array;
}

const MAX_UINT256 = 2n ** 256n - 1n;

/**
 * Reads the five headers of a spend or a balance read: all or none (R30). The account is the payer's address, which is
 * public: only the signature authorizes.
 */
export function readPrepaidCredential(headers: Readonly<Record<string, string | undefined>>) {
  const missing = PREPAID_SIGNING.headers.find((name) => headers[name] === undefined);
  if (missing !== undefined) {
    const message = `${missing} is missing. Send ${PREPAID_SIGNING.headers.join(', ')}. You were not charged.`;
    return malformed(missing, 'required', message);
  }
  const compact = compactFault('x-x402-signature', headers['x-x402-signature']);
  if (compact) return malformed('x-x402-signature', '65 bytes', `${compact} You were not charged.`);
  const credential = parsePrepaidHeaders(headers);
  return credential
    ? { outcome: 'read' as const, credential }
    : malformed(
        'x-x402-max-amount',
        'uint256',
        'x-x402-max-amount must be below 2^256. Correct it and sign again. You were not charged.',
      );
}

const malformed = (field: string, rule: string, message: string) =>
  refused('INVALID_REQUEST', 'malformed_credential', { fault: { field, rule, message } });

/** The credential of headers that the contract has validated. Undefined if the maximum is no uint256 (R30). */
export function parsePrepaidHeaders(
  headers: Readonly<Record<string, string | undefined>>,
): PrepaidCredential | undefined {
  const text = (name: (typeof PREPAID_SIGNING.headers)[number]) => String(headers[name]);
  const maxAmountMicroUsd = BigInt(text('x-x402-max-amount'));
  if (maxAmountMicroUsd > MAX_UINT256) return undefined;
  return {
    account: text('x-x402-account').toLowerCase() as Address,
    nonce: text('x-x402-nonce'),
    expiry: BigInt(text('x-x402-expiry')),
    maxAmountMicroUsd,
    signature: withFullV(text('x-x402-signature').toLowerCase()) as Hex,
  };
}

export const isOfAddress = ({ account }: PrepaidCredential, address: string): boolean =>
  account === address.toLowerCase();

export interface RawRequest {
  readonly method: string;
  readonly url: string;
  readonly bytes: Uint8Array;
}

/** What `bodyHash` hashes (R31): the exact body of a POST, the canonical query of a GET (R49). */
const signedBytes = ({ method, url, bytes }: RawRequest): Uint8Array =>
  method === 'POST' ? bytes : Buffer.from(canonicalQuery(url));

export const signedRequestOf = (request: RawRequest): SignedRequest => ({
  method: request.method,
  path: pathOf(request.url),
  bodyHash: keccak256(signedBytes(request)),
});

/** What a balance read signs: an empty query, whatever was sent (R31). */
export const signedBalanceRead = ({ url }: { url: string }): SignedRequest => ({
  method: 'GET',
  path: pathOf(url),
  bodyHash: keccak256(new Uint8Array()),
});

/** Half a hash is enough, because the digest finds repetitions, not forgeries. */
const DIGEST_BYTES = 16;

export function requestDigest(credential: PrepaidCredential, request: RawRequest): Buffer {
  const { account, nonce, expiry, maxAmountMicroUsd, signature } = credential;
  const { method, url } = request;
  const terms = [account, nonce, String(expiry), String(maxAmountMicroUsd), signature, method, pathOf(url)];
  const hash = createHash('sha256').update(JSON.stringify(terms)).update(signedBytes(request));
  return hash.digest().subarray(0, DIGEST_BYTES);
}

const pathOf = (url: string): string => url.split('?', 1)[0] as string;

export class PrepaidVerifier {
  readonly #payees: readonly Payee[];
  readonly #separators: ReadonlyMap<Address, Uint8Array>;

  constructor(serviceName: string, asset: Asset, payees: readonly Payee[]) {
    this.#payees = payees;
    const separator = ({ address }: Payee) => domainSeparator(prepaidDomain(serviceName, asset.chainId, address));
    this.#separators = new Map(payees.map((payee) => [payee.address, separator(payee)]));
  }

  /**
   * Whether the key of the account's address has signed, for the current payee or a retiring one (R30). A smart account
   * (EIP-1271) can't sign.
   */
  isSignedByAccount({ account, signature, ...terms }: PrepaidCredential, request: SignedRequest): boolean {
    const hash = hashPrepaidRequest({ account, ...terms, ...request });
    const expected = Buffer.from(account);
    return payablePayees(this.#payees, new Date()).some(({ address }) => {
      const separator = this.#separators.get(address) as Uint8Array;
      const signer = recoverAddress(signingDigest(separator, hash), signature);
      return signer !== undefined && timingSafeEqual(Buffer.from(signer), expected);
    });
  }
}
