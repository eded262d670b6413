import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';

export interface Wallet {
  /** With the letter case of EIP-55 or not, as wallets differ. */
  readonly address: string;
  /** EIP-191 personal_sign: 65 bytes in hexadecimal. */
  sign(message: string): Promise<string>;
}

/** A wallet of viem's. */
export function viemWallet(): Wallet {
  const account = privateKeyToAccount(generatePrivateKey());
  return { address: account.address, sign: (message) => account.signMessage({ message }) };
}

// Neither package has types, and neither is used by the code under test or by viem.
const require = createRequire(import.meta.url);
const { ec: Ec } = require('elliptic');
const { keccak256 } = require('js-sha3');

/** A wallet made of two other libraries, elliptic and js-sha3, with EIP-191 written out. */
export function plainWallet(): Wallet {
  const key = new Ec('secp256k1').keyFromPrivate(randomBytes(32));
  const publicKey = Buffer.from(key.getPublic(false, 'array').slice(1));
  return {
    address: `0x${keccak256(publicKey).slice(24)}`,
    sign: async (message) => {
      const bytes = Buffer.from(message, 'utf8');
      const prefix = Buffer.from(`\u0019Ethereum Signed Message:\n${bytes.byteLength}`, 'utf8');
      const digest = keccak256(Buffer.concat([prefix, bytes]));
      const { r, s, recoveryParam } = key.sign(digest, 'hex', { canonical: true });
      return `0x${r.toString(16, 64)}${s.toString(16, 64)}${(27 + recoveryParam).toString(16)}`;
    },
  };
}
