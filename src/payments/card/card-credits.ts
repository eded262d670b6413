import { v7 as uuidv7 } from 'uuid';
import type { Database } from '../../db/database.ts';
import { GroupedStatement } from '../../db/hot-statements.ts';
import { findCardAccount, isAccountId } from '../../ledger/accounts.ts';
import {
  type CardHoldRequest,
  type CardHoldResult,
  cardHoldStatement,
  type GroupedCardHold,
  singleCardHold,
} from '../../ledger/card-holds.ts';
import { findDebt } from '../../ledger/debts.ts';
import { type BalanceHold, HoldPlacer, type HoldPlacerParts } from '../hold-placer.ts';
import type { PendingSlot, RollingWindow } from '../limits/rolling-window.ts';
import { type Refused, refused } from '../refusal.ts';
import type { Charge, Held, PaymentFlow } from '../speak.ts';

export const CARD_HEADERS = ['x-credit-account', 'x-credit-max-amount'] as const;

type CardCode = 'INVALID_REQUEST' | 'PAYMENT_REQUIRED' | 'RATE_LIMITED' | 'TTS_UNAVAILABLE';

export interface CardCredential {
  readonly accountId: string | undefined;
  /** The maximum price of the request (R65). */
  readonly maxAmountMicroUsd: bigint | undefined;
}

const MAX_INT64 = 2n ** 63n - 1n;

export interface CardReceipt extends Record<string, string | bigint> {
  readonly 'x-credit-account': string;
  readonly 'x-credit-balance': bigint;
  readonly 'x-credit-charged': bigint;
}

/**
 * Pays from a card account, which is funded at the hosted checkout: card data never gets here. The exact price is debited
 * before synthesis (R71). The account's id is a bearer credential: whoever has it can spend the balance (R12).
 */
export class CardCredits implements PaymentFlow<CardCredential> {
  readonly name = 'card';
  readonly livemode: boolean;
  readonly #db: Database;
  readonly #holds: HoldPlacer;
  readonly #limits: RollingWindow;
  readonly #grouped: GroupedStatement<CardHoldRequest, GroupedCardHold>;
  readonly #placeAlone: ReturnType<typeof singleCardHold>;
  readonly #placeForJob: ReturnType<typeof singleCardHold>;

  constructor(livemode: boolean, limits: RollingWindow, parts: HoldPlacerParts) {
    const { db, leases } = parts;
    this.livemode = livemode;
    this.#db = db;
    this.#holds = new HoldPlacer('card', parts);
    this.#limits = limits;
    const terms = { leaseSeconds: leases.seconds, livemode };
    this.#placeAlone = singleCardHold(terms);
    this.#placeForJob = singleCardHold({ leaseSeconds: null, livemode });
    const place = cardHoldStatement({ ...terms, locked: 'skip', limit: limits.size });
    this.#grouped = new GroupedStatement({ run: (requests) => place(db, requests) });
  }

  credentialOf(headers: Readonly<Record<string, string | undefined>>) {
    const maximum = headers['x-credit-max-amount'];
    const maxAmountMicroUsd = maximum === undefined ? undefined : BigInt(maximum);
    if (maxAmountMicroUsd !== undefined && maxAmountMicroUsd > MAX_INT64) {
      const message = `x-credit-max-amount is above ${MAX_INT64}. Send the most that the request may cost, in micro-USD. You were not charged.`;
      const fault = { field: 'x-credit-max-amount', rule: 'maximum', message };
      return refused('INVALID_REQUEST', 'malformed_credential', { fault });
    }
    return { outcome: 'read' as const, credential: { accountId: headers['x-credit-account'], maxAmountMicroUsd } };
  }

  /**
   * A missing account, an unknown account and a low balance are all refused, without a debit (R12).
   * @param trx the transaction of the job that will own the hold
   */
  async authorize(
    { accountId, maxAmountMicroUsd }: CardCredential,
    { priceMicroUsd, usage, slot, request: { log } }: Charge,
    trx?: Database,
  ): Promise<Held<BalanceHold<CardReceipt>> | Refused<CardCode>> {
    if (!accountId) return refused('PAYMENT_REQUIRED', 'no_account', { balanceMicroUsd: 0n });
    if (maxAmountMicroUsd !== undefined && priceMicroUsd > maxAmountMicroUsd)
      return this.#refuseOverMax(accountId, trx);
    const receiptOf = (balanceMicroUsd: bigint, chargedMicroUsd: bigint) =>
      cardReceipt(accountId, balanceMicroUsd, chargedMicroUsd);
    const holdRequest = { accountId, amountMicroUsd: priceMicroUsd, usage };
    if (trx) {
      const placed = await this.#placeForJob(trx, { id: uuidv7(), ...holdRequest });
      if (placed.outcome !== 'placed') return refuse(trx, accountId, placed);
      return { outcome: 'held', hold: this.#holds.ofJob(placed.hold, { receiptOf, log }) };
    }
    const place = (id: string) => this.#place({ id, ...holdRequest }, slot);
    const result = await this.#holds.place(accountId.toLowerCase(), place, { receiptOf, log });
    if (result.outcome === 'held' || result.outcome === 'refused') return result;
    return refuse(this.#db, accountId, result);
  }

  async #refuseOverMax(accountId: string, trx: Database = this.#db): Promise<Refused<'PAYMENT_REQUIRED'>> {
    const account = await findCardAccount(trx, accountId, { livemode: this.livemode });
    if (!account) return refused('PAYMENT_REQUIRED', 'unknown_account', { balanceMicroUsd: 0n });
    return refused('PAYMENT_REQUIRED', 'over_max_amount', { balanceMicroUsd: account.balanceMicroUsd });
  }

  /** Shares a statement with other holds. A locked account, or one that can't pay for all of its holds, needs its own. */
  async #place(holdRequest: CardHoldRequest, slot: PendingSlot | undefined): Promise<CardPlacement> {
    if (slot && isAccountId(holdRequest.accountId)) {
      const grouped = await this.#grouped.execute({ ...holdRequest, accountId: holdRequest.accountId.toLowerCase() });
      if (grouped.outcome === 'unknown_account') return (await slot.takeOfAddress()) ? grouped : RATE_LIMITED;
      if (grouped.outcome === 'judged') {
        if (!slot.record(this.#limits.slotOf(grouped.slots, grouped.turn))) return RATE_LIMITED;
        if (grouped.decided) return grouped.decided;
      }
    }
    if (slot && !(await slot.take())) return RATE_LIMITED;
    return this.#placeAlone(this.#db, holdRequest);
  }
}

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
