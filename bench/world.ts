import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { keccak256 } from '../src/crypto/keccak.ts';
import type { Address } from '../src/x402/payees.ts';
import { MP3_FRAME_BYTES } from '../test/support/silent-audio.ts';

// The package has no types of its own, and those of the gateway leave key pairs out.
const { publicKeyCreate } = createRequire(import.meta.url)('secp256k1') as {
  publicKeyCreate(key: Uint8Array, compressed: boolean): Uint8Array;
};

/** What every target is asked to speak. */
export const TEXT = 'The morning train to the coast leaves from platform nine.';
/** At the rate of the default model, the same at every target that is paid. */
export const PRICE_MICRO_USD = BigInt(TEXT.length) * 18n;
/** Of the audio that it is answered with: 64 frames. */
export const AUDIO_BYTES = 64 * MP3_FRAME_BYTES;
export const CONCURRENCY = 16;

/** Card accounts, and as many wallets, so that requests rarely meet at one. */
export const ACCOUNTS = 1_000;
/** What each has at the start, in micro-USD: more than a run can spend. */
export const FUNDS_MICRO_USD = 1_000_000_000n;

export const PAY_TO: Address = '0x00000000000000000000000000000000000000a1';
export const CHAIN_ID = 8453;

/** The id of a card account, by its number. */
export const accountId = (index: number): string => `b0000000-0000-4000-8000-${String(index).padStart(12, '0')}`;

export interface Wallet {
  readonly address: Address;
  readonly key: Uint8Array;
}

/** A wallet, by its number: always the same key, so that processes need not tell each other. */
function wallet(index: number): Wallet {
  const key = createHash('sha256').update(`wallet ${index} of the benchmark`).digest();
  const publicKey = publicKeyCreate(key, false).subarray(1);
  return { key, address: `0x${Buffer.from(keccak256(publicKey)).toString('hex', 12)}` };
}

export const wallets = (): Wallet[] => Array.from({ length: ACCOUNTS }, (_, index) => wallet(index));
