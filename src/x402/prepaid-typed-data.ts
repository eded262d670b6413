import { keccak256 } from '../crypto/keccak.ts';
import type { Address } from './payees.ts';

/** The EIP-712 domain that prepaid requests are signed for. */
export interface PrepaidDomain {
  readonly name: string;
  readonly version: string;
  readonly chainId: number;
  readonly verifyingContract: Address;
}

/**
 * What a prepaid request signs (specification, "Authentication" 4; R30), in the form that wallets and EIP-712 libraries take.
 * The digest that is verified here is made from the same list.
 */
export const PREPAID_TYPES = {
  PrepaidRequest: [
    { name: 'account', type: 'address' },
    { name: 'method', type: 'string' },
    { name: 'path', type: 'string' },
    { name: 'bodyHash', type: 'bytes32' },
    { name: 'maxAmountMicroUsd', type: 'uint256' },
    { name: 'nonce', type: 'string' },
    { name: 'expiry', type: 'uint256' },
  ],
} as const;

/** The values of those fields. */
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
const keccakText = (text: string): Uint8Array => keccak256(Buffer.from(text));

const FIELDS = PREPAID_TYPES.PrepaidRequest;
const DOMAIN_TYPE = keccakText('EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)');
const REQUEST_TYPE = keccakText(`PrepaidRequest(${FIELDS.map(({ type, name }) => `${type} ${name}`).join(',')})`);

/** The domain's part of every digest; computed once. */
export const domainSeparator = ({ name, version, chainId, verifyingContract }: PrepaidDomain): Uint8Array =>
  keccak256(
    words(DOMAIN_TYPE, keccakText(name), keccakText(version), uint256(BigInt(chainId)), addressWord(verifyingContract)),
  );

/** The request's part of the digest (hashStruct of EIP-712), whatever the domain. */
export const structHash = (request: PrepaidRequest): Uint8Array =>
  keccak256(words(REQUEST_TYPE, ...FIELDS.map(({ type, name }) => WORD_OF[type](request[name] as never))));

/** The EIP-712 digest: what the wallet's key signs. */
export const signingDigest = (separator: Uint8Array, hash: Uint8Array): Uint8Array =>
  keccak256(Buffer.concat([Buffer.of(0x19, 0x01), separator, hash]));

function words(...parts: readonly Uint8Array[]): Buffer {
  for (const part of parts) if (part.length !== WORD) throw new RangeError('an EIP-712 word has 32 bytes');
  return Buffer.concat(parts);
}

const uint256 = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(2 * WORD, '0'), 'hex');

const addressWord = (address: Address): Buffer => Buffer.from(address.slice(2).padStart(2 * WORD, '0'), 'hex');

/** encodeData of EIP-712, for each type that a field may have. */
const WORD_OF = { address: addressWord, string: keccakText, bytes32: (bytes: Uint8Array) => bytes, uint256 } as const;
