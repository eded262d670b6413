import { keccak256 } from 'viem';
import type { Address } from './payees.ts';

/** The EIP-712 domain that prepaid requests are signed for. */
export interface PrepaidDomain {
  readonly name: string;
  readonly version: string;
  readonly chainId: number;
  readonly verifyingContract: Address;
}

/** What a prepaid request signs (specification, "Authentication" 4). */
export interface PrepaidRequest {
  readonly account: Address;
  readonly method: string;
  /** Without the query (R31). */
  readonly path: string;
  /** 32 bytes. */
  readonly bodyHash: Uint8Array;
  /** uint256, as is the expiry. */
  readonly maxAmountMicroUsd: bigint;
  readonly nonce: string;
  /** Unix seconds. */
  readonly expiry: bigint;
}

const WORD = 32;
const keccak = (bytes: Uint8Array): Uint8Array => keccak256(bytes, 'bytes');
const keccakText = (text: string): Uint8Array => keccak(Buffer.from(text));

const DOMAIN_TYPE = keccakText('EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)');
const REQUEST_TYPE = keccakText(
  'PrepaidRequest(address account,string method,string path,bytes32 bodyHash,uint256 maxAmountMicroUsd,string nonce,' +
    'uint256 expiry)',
);

/** The domain's part of every digest; computed once. */
export const domainSeparator = ({ name, version, chainId, verifyingContract }: PrepaidDomain): Uint8Array =>
  keccak(
    words(DOMAIN_TYPE, keccakText(name), keccakText(version), uint256(BigInt(chainId)), addressWord(verifyingContract)),
  );

/** The request's part of the digest, whatever the domain. */
export const requestHash = (request: PrepaidRequest): Uint8Array =>
  keccak(
    words(
      REQUEST_TYPE,
      addressWord(request.account),
      keccakText(request.method),
      keccakText(request.path),
      request.bodyHash,
      uint256(request.maxAmountMicroUsd),
      keccakText(request.nonce),
      uint256(request.expiry),
    ),
  );

/** The EIP-712 digest: what the wallet's key signs. */
export const signingDigest = (separator: Uint8Array, hash: Uint8Array): Uint8Array =>
  keccak(Buffer.concat([Buffer.of(0x19, 0x01), separator, hash]));

function words(...parts: readonly Uint8Array[]): Buffer {
  for (const part of parts) if (part.length !== WORD) throw new RangeError('an EIP-712 word has 32 bytes');
  return Buffer.concat(parts);
}

const uint256 = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(2 * WORD, '0'), 'hex');

const addressWord = (address: Address): Buffer => Buffer.from(address.slice(2).padStart(2 * WORD, '0'), 'hex');
