import { createHash, timingSafeEqual } from 'node:crypto';
import { domainSeparator, signingDigest } from '../crypto/eip712.ts';
import { keccak256 } from '../crypto/keccak.ts';
import { recoverAddress, withFullV } from '../crypto/wallet-signature.ts';
import { canonicalQuery } from './canonical-query.ts';
import type { Hex } from './envelope.ts';
import type { Asset } from './network.ts';
import { type Address, type Payee, payablePayees } from './payees.ts';
import { type PREPAID, prepaidDomain } from './prepaid-terms.ts';
import { hashPrepaidRequest } from './prepaid-typed-data.ts';

/** The five headers of a prepaid request, well-formed; whether the signature is the account's is not known yet. */
export interface PrepaidCredential {
  /** In lower case. */
  readonly account: Address;
  readonly nonce: string;
  /** Unix seconds. The ledger's wallets hold it against the database's clock. */
  readonly expiry: bigint;
  readonly maxAmountMicroUsd: bigint;
  /** In lower case, with v 27 or 28: whoever repeats a request may choose how it is written (R67). */
  readonly signature: Hex;
}

/** What the signature covers besides the credential. */
export interface SignedRequest {
  readonly method: string;
  readonly path: string;
  readonly bodyHash: Uint8Array;
}

const MAX_UINT256 = 2n ** 256n - 1n;

/** Reads the five prepaid headers, whose forms the contract holds. Undefined when the max amount is no uint256 (R30). */
export function readCredential(headers: Readonly<Record<string, string | undefined>>): PrepaidCredential | undefined {
  const maxAmountMicroUsd = BigInt(textOf(headers, 'x-x402-max-amount'));
  if (maxAmountMicroUsd > MAX_UINT256) return undefined;
  return {
    account: textOf(headers, 'x-x402-account').toLowerCase() as Address,
    nonce: textOf(headers, 'x-x402-nonce'),
    expiry: BigInt(textOf(headers, 'x-x402-expiry')),
    maxAmountMicroUsd,
    signature: withFullV(textOf(headers, 'x-x402-signature').toLowerCase()) as Hex,
  };
}

const textOf = (
  headers: Readonly<Record<string, string | undefined>>,
  name: (typeof PREPAID.headers)[number],
): string => String(headers[name]);

/** A request as it was sent; the URL is path and query. */
export interface RawRequest {
  readonly method: string;
  readonly url: string;
  readonly bytes: Uint8Array;
}

/** What is signed of a request: the exact body of a POST, the canonical query of a GET (R49). */
const signedBytes = ({ method, url, bytes }: RawRequest): Uint8Array =>
  method === 'POST' ? bytes : Buffer.from(canonicalQuery(url));

export const signedRequestOf = (request: RawRequest): SignedRequest => ({
  method: request.method,
  path: pathOf(request.url),
  bodyHash: keccak256(signedBytes(request)),
});

/** What is signed to read a balance: an empty query, whatever was sent (R31). */
export const signedBalanceRead = ({ url }: { url: string }): SignedRequest => ({
  method: 'GET',
  path: pathOf(url),
  bodyHash: keccak256(new Uint8Array()),
});

/** Bytes of a request's digest: what is identical is not looked for among forgeries, so that half a hash will do. */
const DIGEST_BYTES = 16;

/** What an identical request has again: of the credential and of all that is signed. */
export function requestDigest(credential: PrepaidCredential, request: RawRequest): Buffer {
  const { account, nonce, expiry, maxAmountMicroUsd, signature } = credential;
  const { method, url } = request;
  const terms = [account, nonce, String(expiry), String(maxAmountMicroUsd), signature, method, pathOf(url)];
  const hash = createHash('sha256').update(JSON.stringify(terms)).update(signedBytes(request));
  return hash.digest().subarray(0, DIGEST_BYTES);
}

/** Without the query (R31). */
const pathOf = (url: string): string => url.split('?', 1)[0] as string;

/** Tells whether a credential was signed by its account for a request to this service. */
export class PrepaidVerifier {
  readonly #payees: readonly Payee[];
  readonly #separators: ReadonlyMap<Address, Uint8Array>;

  constructor(serviceName: string, asset: Asset, payees: readonly Payee[]) {
    this.#payees = payees;
    const separator = ({ address }: Payee) => domainSeparator(prepaidDomain(serviceName, asset, address));
    this.#separators = new Map(payees.map((payee) => [payee.address, separator(payee)]));
  }

  /** The verifying contract may be the current payee or one that retires (R30). */
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
