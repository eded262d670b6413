import type { Database } from '../db/database.ts';
import { GroupedStatement } from '../db/grouped-statement.ts';
import { findCardAccount, isAccountId } from '../ledger/accounts.ts';
import {
  type AskedCardHold,
  type CardHoldResult,
  type Gate,
  type GatedHold,
  placeCardHold,
  placeCardHolds,
} from '../ledger/card-holds.ts';
import { findDebt } from '../ledger/debts.ts';
import type { PendingSlot, Slot } from '../limits/slot.ts';
import type { SlotRow } from '../limits/take-slots.ts';
import type { BalanceHold } from './balance-hold.ts';
import { HoldKeeper, type HoldKeeperParts, NOT_CHARGED } from './hold-keeper.ts';
import type { Authorization, Charge, PaymentFlow } from './payment-flow.ts';
import { type Refused, refused } from './refusal.ts';

/** The request headers that show the flow's credential. */
export const CARD_HEADERS = ['x-credit-account', 'x-credit-max-amount'] as const;

type CardCode = 'INVALID_REQUEST' | 'PAYMENT_REQUIRED' | 'RATE_LIMITED' | 'TTS_UNAVAILABLE';

/** What a request shows to be paid by card credits. */
export interface CardCredential {
  readonly accountId: string | undefined;
  /** The most that the request may cost (R65); undefined for any price. */
  readonly maxAmountMicroUsd: bigint | undefined;
}

const MAX_INT64 = 2n ** 63n - 1n;

export interface CardReceipt extends Record<string, string | bigint> {
  /** As the caller wrote it. */
  readonly 'x-credit-account': string;
  readonly 'x-credit-balance': bigint;
  readonly 'x-credit-charged': bigint;
}

export type CardHold = BalanceHold<CardReceipt>;

/** Pays from a card-credit account, whose bearer id is the whole credential. */
export class CardCredits implements PaymentFlow<CardCredential, CardCode, CardHold> {
  readonly name = 'card';
  readonly isRemote = false;
  readonly untaken = NOT_CHARGED;
  /** Of the processor's key: accounts of the other mode are unknown. */
  readonly livemode: boolean;
  readonly #db: Database;
  readonly #holds: HoldKeeper;
  readonly #leaseSeconds: number;
  readonly #grouped: GroupedStatement<AskedCardHold, GatedHold<Slot> | undefined>;

  /** @param gate takes the slots of requests together with their holds */
  constructor(livemode: boolean, gate: Gate<SlotRow, Slot>, parts: HoldKeeperParts) {
    const { db, leaseSeconds } = parts;
    this.livemode = livemode;
    this.#db = db;
    this.#holds = new HoldKeeper('card', parts);
    this.#leaseSeconds = leaseSeconds;
    this.#grouped = new GroupedStatement({
      run: (asked) => placeCardHolds(db, asked, { leaseSeconds, livemode, locked: 'skip' }, gate),
      keyOf: ({ paidFor }) => paidFor?.traceId,
    });
  }

  credentialOf(headers: Readonly<Record<string, string | undefined>>) {
    const maximum = headers['x-credit-max-amount'];
    const maxAmountMicroUsd = maximum === undefined ? undefined : BigInt(maximum);
    if (maxAmountMicroUsd !== undefined && maxAmountMicroUsd > MAX_INT64) {
      const message = `x-credit-max-amount is above ${MAX_INT64}. Send the most that the request may cost, in micro-USD.`;
      const fault = { field: 'x-credit-max-amount', rule: 'maximum', message };
      return refused('INVALID_REQUEST', 'malformed_credential', { fault });
    }
    return { outcome: 'read' as const, credential: { accountId: headers['x-credit-account'], maxAmountMicroUsd } };
  }

  /** No account, an unknown one and too small a balance are all refused, with nothing debited (R12). */
  async authorize(
    { accountId, maxAmountMicroUsd }: CardCredential,
    { priceMicroUsd, paidFor, request, slot }: Charge,
    trx?: Database,
  ): Promise<Authorization<CardCode, CardHold>> {
    if (!accountId) return refused('PAYMENT_REQUIRED', 'no_account', { balanceMicroUsd: 0n });
    if (maxAmountMicroUsd !== undefined && priceMicroUsd > maxAmountMicroUsd)
      return this.#refuseOverMax(accountId, trx);
    const show = (balanceMicroUsd: bigint, chargedMicroUsd: bigint) =>
      cardReceipt(accountId, balanceMicroUsd, chargedMicroUsd);
    const asked = { accountId, amountMicroUsd: priceMicroUsd, paidFor };
    if (trx) {
      const placed = await this.#placeAlone(trx, asked, null);
      return placed.outcome === 'held'
        ? { outcome: 'held', hold: this.#holds.ofJob(placed.hold, show) }
        : refuse(trx, accountId, placed);
    }
    const result = await this.#holds.place(
      accountId.toLowerCase(),
      request.answer,
      (processId) => this.#place({ processId, ...asked }, slot),
      { show },
    );
    if (result.outcome === 'refused') return result;
    return result.hold ? { outcome: 'held', hold: result.hold } : refuse(this.#db, accountId, result.placed);
  }

  async #refuseOverMax(accountId: string, trx: Database = this.#db): Promise<Refused<'PAYMENT_REQUIRED'>> {
    const account = await findCardAccount(trx, accountId, { livemode: this.livemode });
    if (!account) return refused('PAYMENT_REQUIRED', 'unknown_account', { balanceMicroUsd: 0n });
    return refused('PAYMENT_REQUIRED', 'over_max_amount', { balanceMicroUsd: account.balanceMicroUsd });
  }

  /**
   * Together with others' and the slot, unless the account is unknown, in the hands of another process just now, or has
   * too little for all that is asked of it at once.
   */
  async #place(asked: AskedCardHold, slot: PendingSlot | undefined): Promise<CardPlacement> {
    if (slot && isAccountId(asked.accountId)) {
      const gated = await this.#grouped.execute({ ...asked, accountId: asked.accountId.toLowerCase() });
      if (gated && !slot.taken(gated.told)) return RATE_LIMITED;
      if (gated?.placed) return gated.placed;
    }
    if (slot && !(await slot.take())) return RATE_LIMITED;
    return this.#placeAlone(this.#db, asked, this.#leaseSeconds);
  }

  #placeAlone(db: Database, { accountId, amountMicroUsd, ...asked }: AskedCardHold, leaseSeconds: number | null) {
    return placeCardHold(db, accountId, amountMicroUsd, leaseSeconds, { livemode: this.livemode, ...asked });
  }
}

/** @param accountId as the caller wrote it */
export const cardReceipt = (accountId: string, balanceMicroUsd: bigint, chargedMicroUsd: bigint): CardReceipt => ({
  'x-credit-account': accountId,
  'x-credit-balance': balanceMicroUsd,
  'x-credit-charged': chargedMicroUsd,
});

type CardPlacement = CardHoldResult | typeof RATE_LIMITED;
const RATE_LIMITED = { outcome: 'rate_limited' } as const;

async function refuse(db: Database, accountId: string, placed: CardPlacement): Promise<Refused<CardCode>> {
  switch (placed.outcome) {
    case 'rate_limited':
      return refused('RATE_LIMITED', placed.outcome);
    case 'insufficient_funds':
    case 'account_frozen':
      return refused('PAYMENT_REQUIRED', placed.outcome, { balanceMicroUsd: placed.balanceMicroUsd });
    case 'account_indebted': {
      const debtMicroUsd = await findDebt(db, accountId);
      return refused('PAYMENT_REQUIRED', placed.outcome, { balanceMicroUsd: placed.balanceMicroUsd, debtMicroUsd });
    }
    default:
      return refused('PAYMENT_REQUIRED', placed.outcome, { balanceMicroUsd: 0n });
  }
}
