import { keccak256 } from './keccak.ts';

/** What a signature is made for, so that it counts nowhere else. */
export interface Eip712Domain {
  readonly name: string;
  readonly version: string;
  readonly chainId: number;
  /** In hexadecimal, with or without its checksum. */
  readonly verifyingContract: `0x${string}`;
}

/** How a value of each type is given here. */
interface ValueOf {
  address: `0x${string}`;
  string: string;
  /** 32 bytes. */
  bytes32: Uint8Array;
  uint256: bigint;
}

/** A struct's fields in their order, in the form that wallets and EIP-712 libraries take. */
export type Fields = readonly { readonly name: string; readonly type: keyof ValueOf }[];

/** The values of those fields. */
export type Message<F extends Fields> = { readonly [field in F[number] as field['name']]: ValueOf[field['type']] };

const WORD = 32;
const DOMAIN_TYPE = keccakText('EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)');

/** The domain's part of a digest. */
export const domainSeparator = ({ name, version, chainId, verifyingContract }: Eip712Domain): Uint8Array =>
  keccak256(
    words(DOMAIN_TYPE, keccakText(name), keccakText(version), uint256(BigInt(chainId)), addressWord(verifyingContract)),
  );

/** hashStruct of EIP-712 for a struct of this name: the message's part of a digest, whatever the domain. */
export function structHasher<F extends Fields>(name: string, fields: F): (message: Message<F>) => Uint8Array {
  const type = keccakText(`${name}(${fields.map((field) => `${field.type} ${field.name}`).join(',')})`);
  return (message) =>
    keccak256(
      words(type, ...fields.map((field) => WORD_OF[field.type](message[field.name as keyof Message<F>] as never))),
    );
}

/** The EIP-712 digest: what the wallet's key signs. */
export const signingDigest = (separator: Uint8Array, structHash: Uint8Array): Uint8Array =>
  keccak256(Buffer.concat([Buffer.of(0x19, 0x01), separator, structHash]));

function words(...parts: readonly Uint8Array[]): Buffer {
  for (const part of parts) if (part.length !== WORD) throw new RangeError('an EIP-712 word has 32 bytes');
  return Buffer.concat(parts);
}

function keccakText(text: string): Uint8Array {
  return keccak256(Buffer.from(text));
}

const uint256 = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(2 * WORD, '0'), 'hex');

const addressWord = (address: `0x${string}`): Buffer => Buffer.from(address.slice(2).padStart(2 * WORD, '0'), 'hex');

/** encodeData of EIP-712, for each type that a field may have. */
const WORD_OF = { address: addressWord, string: keccakText, bytes32: (bytes: Uint8Array) => bytes, uint256 } as const;
