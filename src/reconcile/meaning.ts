import type { Catalog } from '../speech/catalog.ts';
import { MAX_TEXT_LENGTH } from '../speech/limits.ts';
import { isPrice } from '../speech/price.ts';
import { PREPAID } from '../x402/prepaid-terms.ts';

/** What a transfer can have been, by its amount alone: both are paid to the same address. */
export type Meaning = 'deposit' | 'speech' | 'either' | 'neither';

/** By the bounds of deposits, and the prices of this catalog. @param amount in micro-USD */
export function meaningOf(amount: bigint, { models }: Catalog): Meaning {
  const isDeposit = amount >= PREPAID.minDepositMicroUsd && amount <= PREPAID.maxDepositMicroUsd;
  const isSpeech = models.some(({ ratePicoUsd, maxInputCharacters }) =>
    isPrice(amount, ratePicoUsd, Math.min(maxInputCharacters, MAX_TEXT_LENGTH)),
  );
  if (isDeposit && isSpeech) return 'either';
  if (isDeposit) return 'deposit';
  return isSpeech ? 'speech' : 'neither';
}
