import { randomBytes, randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { captureHold } from '../../src/ledger/hold.ts';
import { placeWalletHold } from '../../src/ledger/wallet-holds.ts';
import { bookSettlement } from '../../src/x402/book-settlement.ts';
import type { Address } from '../../src/x402/payees.ts';
import { Reservations } from '../../src/x402/reservations.ts';
import { ASSET, NETWORK, PAY_TO } from './fill/names.ts';

/** "Hello world" by the default model, in micro-USD. */
const PRICE = 198n;
const LEASE_SECONDS = 75;
/** Of a process that is gone: nothing asks for it here. */
const PROCESS = 1;
/** Who spoke. */
const UPSTREAM = { name: 'default', costPicoUsd: 15_000_000n };
/** What a PAYMENT-RESPONSE header takes. */
const RECEIPT = randomBytes(210).toString('base64');

export interface Payers {
  readonly cards: readonly string[];
  /** Addresses in lower case. */
  readonly wallets: readonly string[];
}

/** What a paid request of a flow writes, by the service's own functions. @param turn chooses who pays */
export type LedgerFlow = (db: Database, payers: Payers, turn: number) => Promise<void>;

export const LEDGER_FLOWS: Readonly<Record<'card' | 'prepaid' | 'direct', LedgerFlow>> = {
  card: async (db, { cards }, turn) => {
    const account = cards[turn % cards.length] as string;
    const placed = await placeCardHold(db, account, PRICE, LEASE_SECONDS, { paidFor: paidFor(), processId: PROCESS });
    if (placed.outcome !== 'held') throw new Error(`a card hold is refused: ${placed.outcome}`);
    await captureHold(db, { ...placed.hold, upstream: UPSTREAM });
  },
  prepaid: async (db, { wallets }, turn) => {
    const spend = {
      address: wallets[turn % wallets.length] as string,
      nonce: randomUUID(),
      expiry: BigInt(Math.floor(Date.now() / 1000) + 60),
      amountMicroUsd: PRICE,
      isPermitted: true,
      paidFor: paidFor(),
      processId: PROCESS,
    };
    const placed = await placeWalletHold(db, spend, LEASE_SECONDS);
    if (placed.outcome !== 'held') throw new Error(`a wallet's hold is refused: ${placed.outcome}`);
    await captureHold(db, { ...placed.hold, upstream: UPSTREAM });
  },
  direct: async (db, { wallets }, turn) => {
    const reservations = new Reservations(db, { network: NETWORK, address: ASSET } as never);
    const reserved = await reservations.reserve({
      purpose: 'speech',
      identifier: `pay_${randomUUID()}`,
      requestHash: randomBytes(32),
      headBlock: 1n,
      traceId: randomUUID(),
      paidFor: paidFor(),
      claim: {
        payer: wallets[turn % wallets.length] as Address,
        nonce: hex(),
        payTo: PAY_TO as Address,
        amount: PRICE,
        validBefore: BigInt(Math.floor(Date.now() / 1000) + 300),
      },
    });
    if (!reserved) throw new Error('a payment is refused');
    const { payment } = reserved;
    await reservations.beginSettling(payment, UPSTREAM);
    await bookSettlement(db, payment.id, { transaction: hex(), logIndex: 0 }, RECEIPT);
  },
};

const paidFor = () => ({ model: 'provider-a/tts-1', characters: 11, ratePicoUsd: 18_000_000n, traceId: randomUUID() });
const hex = (): `0x${string}` => `0x${randomBytes(32).toString('hex')}`;

/** Payers of a filled ledger, spread evenly over all. @param accounts that the ledger was filled with */
export async function payersOf(db: Database, accounts: number, count: number): Promise<Payers> {
  const ids = async (kind: 'card' | 'wallet') => {
    const { rows } = await sql<{ payer: string }>`
      select coalesce(account.address, account.id::text) as payer from generate_series(1, ${count}::bigint) place
      join account on account.id = md5(${`${kind} `} || (1 + (place - 1) * ${accounts / 2}::bigint / ${count}::bigint))::uuid`.execute(
      db,
    );
    return rows.map(({ payer }) => payer);
  };
  return { cards: await ids('card'), wallets: await ids('wallet') };
}
