import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/db/database.ts';
import { GroupedStatement } from '../../src/db/grouped-statement.ts';
import { type AskedCardHold, OPEN, placeCardHolds } from '../../src/ledger/card-holds.ts';
import { captureHolds, type HeldBy } from '../../src/ledger/hold.ts';
import { accountId, PRICE_MICRO_USD, TEXT } from '../world.ts';

const TERMS = { leaseSeconds: 75, livemode: null } as const;
const RATE_PICO_USD = 18_000_000n;
/** What a capture tells of the synthesis. */
export const UPSTREAM = { name: 'default', costPicoUsd: 15_000_000n };

/** Places holds as the gateway does. @param locked what becomes of accounts that others are changing */
export async function placeHolds(db: Database, asked: readonly AskedCardHold[], locked: 'wait' | 'skip') {
  const holds = await placeCardHolds(db, asked, { ...TERMS, locked }, OPEN);
  return holds.map((gated) => {
    if (gated?.placed?.outcome !== 'held') throw new Error('a hold was refused');
    return gated.placed.hold;
  });
}

/** What is asked of an account for a request. @param account its number */
export const askedOf = (account: number): AskedCardHold => ({
  accountId: accountId(account),
  amountMicroUsd: PRICE_MICRO_USD,
  paidFor: { model: 'provider-a/tts-1', characters: TEXT.length, ratePicoUsd: RATE_PICO_USD, traceId: randomUUID() },
});

/** What card requests take from the ledger, a hold and its capture, each in a statement that those at the same time share. */
export function openDebits(db: Database): (account: number) => Promise<void> {
  const holds = new GroupedStatement({
    run: (asked: readonly AskedCardHold[]) => placeHolds(db, asked, 'skip'),
    keyOf: (asked) => asked,
  });
  const captures = new GroupedStatement({
    run: (held: readonly HeldBy[]) =>
      captureHolds(
        db,
        held.map(({ id, fence }) => ({ id, fence, upstream: UPSTREAM })),
      ),
    keyOf: ({ id }) => id,
  });
  return async (account) => {
    if (!(await captures.execute(await holds.execute(askedOf(account))))) {
      throw new Error('a hold had ended before its capture');
    }
  };
}
