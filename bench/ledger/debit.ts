import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/db/database.ts';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { captureHold } from '../../src/ledger/hold.ts';
import { accountId, PRICE_MICRO_USD, TEXT } from '../world.ts';

const LEASE_SECONDS = 75;
const RATE_PICO_USD = 18_000_000n;

/** Places the hold of a request on an account, by its number, as the gateway does. */
export async function holdOn(db: Database, account: number) {
  const paidFor = { characters: TEXT.length, ratePicoUsd: RATE_PICO_USD, traceId: randomUUID() };
  const placed = await placeCardHold(db, accountId(account), PRICE_MICRO_USD, LEASE_SECONDS, { paidFor });
  if (placed.outcome !== 'held') throw new Error(`a hold was refused: ${placed.outcome}`);
  return placed.hold;
}

/** What a card request takes from the ledger: a hold, and its capture. */
export async function debit(db: Database, account: number): Promise<void> {
  if (!(await captureHold(db, await holdOn(db, account)))) throw new Error('a hold had ended before its capture');
}
