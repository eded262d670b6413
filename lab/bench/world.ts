import { createHash } from 'node:crypto';
import type { Address } from '../../src/config/payees.ts';
import { MP3_FRAME_BYTES } from '../../test/support/silent-audio.ts';
import { type KeyedWallet, keyedWallet } from '../signers/keyed-wallet.ts';

/** The text that every target speaks. */
export const TEXT = 'The morning train to the coast leaves from platform nine.';
/** Price at the rate of the default model, the same at every paid target. */
export const PRICE_MICRO_USD = BigInt(TEXT.length) * 18n;
/** Length of the audio: 64 frames. */
export const AUDIO_BYTES = 64 * MP3_FRAME_BYTES;
export const CONCURRENCY = 16;

/** Number of card accounts, and of wallets. So many that concurrent requests rarely share one. */
export const ACCOUNTS = 1_000;
/** Initial balance of each, in micro-USD: more than a run can spend. */
export const FUNDS_MICRO_USD = 1_000_000_000n;

export const PAY_TO: Address = '0x00000000000000000000000000000000000000A1';
export const CHAIN_ID = 8453;

/** The id of a card account, by its number. */
export const accountId = (index: number): string => `b0000000-0000-4000-8000-${String(index).padStart(12, '0')}`;

/** Fixed keys, so that all processes know them. */
export const wallets = (): KeyedWallet[] =>
  Array.from({ length: ACCOUNTS }, (_, index) =>
    keyedWallet(createHash('sha256').update(`wallet ${index} of the benchmark`).digest()),
  );

/** How the upstream speaks, unless a row measures its latency. */
export const AT_ONCE = { delayMs: 0, pieces: 1, pieceMs: 0 };
