import { createHash } from 'node:crypto';
import type { Address } from '../src/x402/payees.ts';
import { type KeyedWallet, keyedWallet } from '../test/support/keyed-wallet.ts';
import { MP3_FRAME_BYTES } from '../test/support/silent-audio.ts';

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

/** Always the same keys, so that processes need not tell each other. */
export const wallets = (): KeyedWallet[] =>
  Array.from({ length: ACCOUNTS }, (_, index) =>
    keyedWallet(createHash('sha256').update(`wallet ${index} of the benchmark`).digest()),
  );
