import type { Database } from '../db/database.ts';
import { type HoldResult, placeCardHold } from '../ledger/hold.ts';
import type { BalanceHold } from './balance-hold.ts';
import { HoldKeeper, type HoldKeeperParts, NOT_CHARGED } from './hold-keeper.ts';
import type { Authorization, Charge, PaymentFlow } from './payment-flow.ts';
import { refused } from './refusal.ts';

/** The request headers that show the flow's credential. */
export const CARD_HEADERS = ['x-credit-account'] as const;

type CardCode = 'PAYMENT_REQUIRED' | 'RATE_LIMITED' | 'TTS_UNAVAILABLE';

export interface CardReceipt extends Record<string, string | bigint> {
  /** As the caller wrote it. */
  readonly 'x-credit-account': string;
  readonly 'x-credit-balance': bigint;
}

export type CardHold = BalanceHold<CardReceipt>;

/** Pays from a card-credit account, whose bearer id is the whole credential. */
export class CardCredits implements PaymentFlow<string | undefined, CardCode, CardHold> {
  readonly name = 'card';
  readonly isRemote = false;
  readonly untaken = NOT_CHARGED;
  /** Of the processor's key: accounts of the other mode are unknown. */
  readonly livemode: boolean;
  readonly #holds: HoldKeeper;

  constructor(livemode: boolean, parts: HoldKeeperParts) {
    this.livemode = livemode;
    this.#holds = new HoldKeeper('card', parts);
  }

  credentialOf(headers: Readonly<Record<string, string | undefined>>) {
    return { outcome: 'read' as const, credential: headers['x-credit-account'] };
  }

  /** No account, an unknown one and too small a balance are all refused, with nothing debited (R12). */
  async authorize(
    accountId: string | undefined,
    { priceMicroUsd, paidFor, request }: Charge,
    trx?: Database,
  ): Promise<Authorization<CardCode, CardHold>> {
    if (!accountId) return refused('PAYMENT_REQUIRED', 'no_account', { balanceMicroUsd: 0n });
    const show = (balanceMicroUsd: bigint) => cardReceipt(accountId, balanceMicroUsd);
    const terms = { paidFor, livemode: this.livemode };
    if (trx) {
      const placed = await placeCardHold(trx, accountId, priceMicroUsd, null, terms);
      return placed.outcome === 'held'
        ? { outcome: 'held', hold: this.#holds.ofJob(placed.hold, show) }
        : refuse(placed);
    }
    const result = await this.#holds.place(
      accountId.toLowerCase(),
      request.answer,
      (db, leaseSeconds, processId) =>
        placeCardHold(db, accountId, priceMicroUsd, leaseSeconds, { ...terms, processId }),
      show,
    );
    if (result.outcome === 'refused') return result;
    return result.hold ? { outcome: 'held', hold: result.hold } : refuse(result.placed);
  }
}

/** @param accountId as the caller wrote it */
export const cardReceipt = (accountId: string, balanceMicroUsd: bigint): CardReceipt => ({
  'x-credit-account': accountId,
  'x-credit-balance': balanceMicroUsd,
});

const refuse = (placed: HoldResult) =>
  refused('PAYMENT_REQUIRED', placed.outcome, {
    balanceMicroUsd: placed.outcome === 'insufficient_funds' ? placed.balanceMicroUsd : 0n,
  });
