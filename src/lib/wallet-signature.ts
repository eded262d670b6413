import secp256k1 from 'secp256k1';
import { keccak256 } from './keccak.ts';

const SIGNATURE = /^0x[0-9a-fA-F]{130}$/;
const COMPACT = /^0x[0-9a-fA-F]{128}$/;
/** Half of the order of secp256k1 (SEC 2, 2.4.1). With an s above it, a signature has a second spelling. */
const HALF_ORDER = Buffer.from('7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0', 'hex');

/** What is wrong with a signature in the compact form of EIP-2098; undefined for all others. */
export const compactFault = (field: string, signature: unknown): string | undefined =>
  typeof signature === 'string' && COMPACT.test(signature)
    ? `${field} has 64 bytes, the compact form of EIP-2098. Send the 65 bytes r, s and v.`
    : undefined;

export function withFullV<S extends string>(signature: S): S {
  if (!SIGNATURE.test(signature) || !/0[01]$/.test(signature)) return signature;
  return `${signature.slice(0, -2)}${signature.endsWith('0') ? '1b' : '1c'}` as S;
}

/**
 * Recovers the signer by secp256k1, in lower case (R31). Returns undefined for high s (EIP-2) and contract signatures
 * (EIP-1271), which are refused (R30).
 */
export function recoverAddress(digest: Uint8Array, signature: string): string | undefined {
  if (!SIGNATURE.test(signature)) return undefined;
  const bytes = Buffer.from(signature.slice(2), 'hex');
  const v = bytes[64] as number;
  const recoveryId = v >= 27 ? v - 27 : v;
  if (recoveryId > 1 || bytes.subarray(32, 64).compare(HALF_ORDER) > 0) return undefined;
  try {
    const publicKey = secp256k1.ecdsaRecover(bytes.subarray(0, 64), recoveryId, digest, false);
    return `0x${Buffer.from(keccak256(publicKey.subarray(1))).toString('hex', 12)}`;
  } catch {
    return undefined;
  }
}

export interface Eip712Domain {
  readonly name: string;
  readonly version: string;
  readonly chainId: number;
  readonly verifyingContract: `0x${string}`;
}

interface ValueOf {
  address: `0x${string}`;
  string: string;
  bytes32: Uint8Array;
  uint256: bigint;
}

export type Fields = readonly { readonly name: string; readonly type: keyof ValueOf }[];

export type Message<F extends Fields> = { readonly [field in F[number] as field['name']]: ValueOf[field['type']] };

const WORD = 32;
const DOMAIN_TYPE = keccakText('EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)');

export const domainSeparator = ({ name, version, chainId, verifyingContract }: Eip712Domain): Uint8Array =>
  keccak256(
    words(DOMAIN_TYPE, keccakText(name), keccakText(version), uint256(BigInt(chainId)), addressWord(verifyingContract)),
  );

/** EIP-712 hashStruct for a struct of this name; it does not depend on the domain. */
export function structHasher<F extends Fields>(name: string, fields: F): (message: Message<F>) => Uint8Array {
  const type = keccakText(`${name}(${fields.map((field) => `${field.type} ${field.name}`).join(',')})`);
  return (message) =>
    keccak256(
      words(type, ...fields.map((field) => WORD_OF[field.type](message[field.name as keyof Message<F>] as never))),
    );
}

/** The EIP-712 digest that a wallet signs. */
export const signingDigest = (separator: Uint8Array, structHash: Uint8Array): Uint8Array =>
  keccak256(Buffer.concat([Buffer.of(0x19, 0x01), separator, structHash]));

function words(...parts: readonly Uint8Array[]): Buffer {
  for (const part of parts) if (part.length !== WORD) throw new RangeError('Each EIP-712 word must have 32 bytes.');
  return Buffer.concat(parts);
}

function keccakText(text: string): Uint8Array {
  return keccak256(Buffer.from(text));
}

const uint256 = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(2 * WORD, '0'), 'hex');

const addressWord = (address: `0x${string}`): Buffer => Buffer.from(address.slice(2).padStart(2 * WORD, '0'), 'hex');

const WORD_OF = { address: addressWord, string: keccakText, bytes32: (bytes: Uint8Array) => bytes, uint256 } as const;
