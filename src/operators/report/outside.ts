import type { Asset } from '../../config/network.ts';
import type { Payee } from '../../config/payees.ts';
import type { Database } from '../../db/database.ts';
import { findInstanceId } from '../../ledger/database-identity.ts';
import { MICRO_USD_PER_CENT } from '../../lib/money.ts';
import { purchaseOfPayment } from '../../payments/top-up/credit-top-up.ts';
import { amountsOf, creditPart, type Processor, type PurchaseAmounts } from '../../payments/top-up/processor.ts';
import type { BalanceEntry } from '../../payments/top-up/processor-balance.ts';
import type { Chain } from '../../payments/x402/chain.ts';
import type { Hex } from '../../payments/x402/envelope.ts';
import { findByAuthorization } from '../../payments/x402/payment.ts';
import { newestConfirmed, type ReceivedTransfer } from '../../payments/x402/transfer-proof.ts';
import { everyPayee } from '../../payments/x402/unrecorded-transfers.ts';
import {
  type BookedItem,
  bookedAt,
  bookedIn,
  isOnItsWay,
  type Period,
  processorIdsOf,
  type SettledPayment,
  settledSince,
} from './books.ts';

export interface Difference {
  readonly what: string;
  readonly id: string;
  readonly microUsd: bigint;
  readonly because: string | null;
}

export interface Comparison {
  readonly outsideMicroUsd: bigint;
  readonly ledgerMicroUsd: bigint;
  readonly differences: readonly Difference[];
  readonly apartMicroUsd: Readonly<Record<string, bigint>>;
}

const KINDS: Readonly<Record<string, BookedItem['what']>> = {
  charge: 'purchase',
  refund: 'refund',
  refund_failure: 'refund',
  dispute: 'dispute',
  dispute_reversal: 'dispute',
};

/**
 * Each side dates an item itself. An item that is in the period of one side only explains a difference.
 * @throws ProcessorError
 */
export async function compareProcessor(db: Database, processor: Processor, period: Period): Promise<Comparison> {
  const purchases = new Purchases(db, processor);
  // The processor dates by the second, so that what is of the last one may be on one side only.
  const lastSecond = Math.floor(Math.min(period.to.getTime(), Date.now()) / 1000);
  const read = { from: period.from, to: new Date(lastSecond * 1000) };
  const outside = new Map<string, BookedItem>();
  const apartMicroUsd: Record<string, bigint> = {};
  const putApart = (name: string, microUsd: bigint) => {
    if (microUsd !== 0n) apartMicroUsd[name] = (apartMicroUsd[name] ?? 0n) + microUsd;
  };
  for await (const entry of processor.balance.entries(period.from, period.to)) {
    const what = KINDS[entry.category];
    const purchase = what && (await purchases.find(entry));
    const id = what === 'purchase' ? purchase?.topUpId : purchase && entry.source;
    const cents = purchase ? creditPart(entry.amountCents, purchase) : entry.amountCents;
    const microUsd = BigInt(cents) * MICRO_USD_PER_CENT;
    putApart('fees', -BigInt(entry.feeCents) * MICRO_USD_PER_CENT);
    putApart('tax', BigInt(entry.amountCents - cents) * MICRO_USD_PER_CENT);
    if (what && id) add(outside, { what, id, microUsd, at: entry.at });
    else putApart(what ? 'payments to other services' : entry.category, microUsd);
  }
  const ledger = await bookedIn(db, period);
  const differences: Difference[] = [];
  for (const key of new Set([...outside.keys(), ...ledger.keys()])) {
    const item = (outside.get(key) ?? ledger.get(key)) as BookedItem;
    const { what, id } = item;
    const microUsd = (outside.get(key)?.microUsd ?? 0n) - (ledger.get(key)?.microUsd ?? 0n);
    if (microUsd === 0n) continue;
    const because = (await isOnItsWay(db, item))
      ? 'not booked yet, because it is new at the card processor: run speechgate reconcile'
      : (elsewhere('the card processor booked it at', await purchases.processorTime(what, id), read) ??
        elsewhere('the ledger booked it at', await bookedAt(db, what, id), read));
    differences.push({ what, id, microUsd, because });
  }
  return { outsideMicroUsd: total(outside), ledgerMicroUsd: total(ledger), differences, apartMicroUsd };
}

const elsewhere = (who: string, at: Date | undefined, { from, to }: Period): string | null =>
  at && (at < from || at >= to) ? `${who} ${at.toISOString()}, outside this period` : null;

const total = (items: ReadonlyMap<string, BookedItem>): bigint =>
  [...items.values()].reduce((sum, { microUsd }) => sum + microUsd, 0n);

/** Entries come newest first. */
function add(items: Map<string, BookedItem>, { what, id, microUsd, at }: BookedItem): void {
  const key = `${what} ${id}`;
  const known = items.get(key);
  items.set(key, { what, id, microUsd: (known?.microUsd ?? 0n) + microUsd, at: known?.at ?? at });
}

type FoundPurchase = PurchaseAmounts & { readonly topUpId: string };

class Purchases {
  readonly #db: Database;
  readonly #processor: Processor;
  readonly #found = new Map<string, Promise<FoundPurchase | undefined>>();

  constructor(db: Database, processor: Processor) {
    this.#db = db;
    this.#processor = processor;
  }

  async find({ paymentIntentId }: BalanceEntry): Promise<FoundPurchase | undefined> {
    if (paymentIntentId === null) return undefined;
    const found = this.#found.get(paymentIntentId) ?? this.#find(paymentIntentId);
    this.#found.set(paymentIntentId, found);
    return found;
  }

  async processorTime(what: BookedItem['what'], id: string): Promise<Date | undefined> {
    if (what !== 'purchase') return this.#processor.balance.lastChangeBy(id);
    const ids = await processorIdsOf(this.#db, id);
    const session = ids?.session && !ids.payment ? await this.#processor.findSession(ids.session) : undefined;
    const payment = ids?.payment ?? session?.payment_intent;
    return typeof payment === 'string' ? this.#processor.balance.chargedAt(payment) : undefined;
  }

  async #find(paymentIntentId: string): Promise<FoundPurchase | undefined> {
    const known = await purchaseOfPayment(this.#db, paymentIntentId);
    if (known !== undefined) return known;
    // Purchases of earlier releases have no payment intent.
    const session = await this.#processor.findSessionOfPayment(paymentIntentId);
    const { instance_id, top_up_id: topUpId } = session?.metadata ?? {};
    const isOurs = session && topUpId && instance_id === (await findInstanceId(this.#db));
    return isOurs ? { topUpId, ...amountsOf(session) } : undefined;
  }
}

/** A payment is booked at most this long after its block, so this reads that much more before the period. */
const BOOKED_WITHIN_MS = 3_600_000;

/**
 * The chain dates a payment by its block, the ledger by its booking, which explains differences.
 * @throws RpcError
 */
export async function compareChain(
  db: Database,
  chain: Chain,
  { asset, payees }: { readonly asset: Asset; readonly payees: readonly Payee[] },
  period: Period,
): Promise<Comparison> {
  const { from, to } = period;
  const since = new Date(from.getTime() - BOOKED_WITHIN_MS);
  const lastRead = newestConfirmed(await chain.head());
  const received = await chain.received(await everyPayee(db, payees), since);
  const times = new Map(received.map((transfer) => [keyOf(transfer), transfer.at]));
  const inPeriod = received.filter(({ at }) => at >= from && at < to);
  const settled = await settledSince(db, asset, since);
  const differences: Difference[] = [];
  for (const transfer of inPeriod) {
    const { transaction, payer, amount, nonce } = transfer;
    const payment = settled.get(keyOf(transfer));
    if (payment && payment.at >= from && payment.at < to) continue;
    const because = payment
      ? `the ledger booked it at ${payment.at.toISOString()}, outside this period`
      : nonce === undefined
        ? 'the transfer was sent without an authorization, so it does not pay this service'
        : await whyUnbooked({ payer, nonce });
    differences.push({ what: 'transfer', id: transaction, microUsd: amount, because });
  }
  let ledgerMicroUsd = 0n;
  for (const [key, { transaction, claim, microUsd, at }] of settled) {
    if (at < from || at >= to) continue;
    ledgerMicroUsd += microUsd;
    const time = times.get(key);
    if (time && time >= from && time < to) continue;
    const because = time
      ? `the block of this transfer is from ${time.toISOString()}, outside this period`
      : await whyUnread(claim, transaction);
    differences.push({ what: 'payment', id: transaction, microUsd: -microUsd, because });
  }
  const outsideMicroUsd = inPeriod.reduce((sum, { amount }) => sum + amount, 0n);
  return { outsideMicroUsd, ledgerMicroUsd, differences, apartMicroUsd: {} };

  async function whyUnbooked(authorization: SettledPayment['claim']): Promise<string | null> {
    const payment = await findByAuthorization(db, asset, authorization);
    if (payment?.state === 'settled') return 'the ledger booked it during this report: run the report again';
    const isFollowed = payment && ['settling', 'unknown', 'refused'].includes(payment.state);
    return isFollowed ? `not booked yet (payment state: ${payment.state}), but the reconcilers will book it` : null;
  }

  /** Speech is booked once its transfer is in a block, which may still wait for the blocks that confirm it. */
  async function whyUnread(authorization: SettledPayment['claim'], transaction: Hex): Promise<string | null> {
    const payment = await findByAuthorization(db, asset, authorization);
    const found = payment && (await chain.prove(payment.claim, transaction));
    if (!found || found.proof.block <= lastRead) return null;
    return `block ${found.proof.block} of this transfer was not confirmed yet: run the report again`;
  }
}

/** By authorization, because a reorganisation may move a transfer within its block. */
const keyOf = ({ transaction, payer, nonce }: ReceivedTransfer): string => `${transaction}:${payer}:${nonce}`;
