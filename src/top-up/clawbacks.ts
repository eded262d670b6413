import type { Database } from '../db/database.ts';
import { bringBack, lockAccount, takeBack } from '../ledger/debts.ts';
import { MICRO_USD_PER_CENT } from '../lib/money.ts';
import { testPoint } from '../lib/test-point.ts';
import { type ClaimedClawback, type ClawbackRow, insertClawback, mark, readAgain } from './clawback-rows.ts';
import { isStatusKnown, meaningOf } from './clawback-status.ts';
import { purchaseOfPayment } from './credit-top-up.ts';
import type { Processor } from './processor.ts';
import { isUsable, type ListedClawback, type ProcessorClawback } from './processor-clawbacks.ts';
import type { Purchases } from './purchases.ts';

/** Payments of others than us that are remembered, so that the processor is asked for each of them once. */
const MOST_FOREIGN = 10_000;

export interface BookedClawback {
  readonly hasMoved: boolean;
  /** For an operator: why it is not certain that this was all. */
  readonly unclear?: string | undefined;
}

const NOTHING: BookedClawback = { hasMoved: false };

/**
 * Books what the processor takes back of purchases and gives back again, each time once (R61). What is booked is what
 * its status means now, so that it does not matter in which order, how often, or by whom it is read:
 *
 *     none, returned -- the processor has the money --> taken -- it has not --> returned
 */
export class Clawbacks {
  readonly #db: Database;
  readonly #processor: Processor;
  readonly #purchases: Purchases;
  readonly #foreign = new Set<string>();

  constructor(db: Database, processor: Processor, purchases: Purchases) {
    this.#db = db;
    this.#processor = processor;
    this.#purchases = purchases;
  }

  /**
   * Records one that was read from the processor's list, and that nothing was known of (`unknownOf`).
   * @throws ProcessorError when it can't be asked whose payment it is
   */
  async record(listed: ListedClawback): Promise<BookedClawback> {
    const purchase = await this.#purchaseOf(listed);
    if (!purchase) return NOTHING;
    if (!isUsable(listed)) {
      const { kind, id, fault } = listed;
      return { hasMoved: false, unclear: `${kind} ${id} has ${fault} at the card processor, and was not booked` };
    }
    testPoint('clawback listed');
    return this.#book(listed, purchase.accountId, (trx) => insertClawback(trx, listed, purchase));
  }

  /** Asks the processor for one that was claimed, and books what that means now. */
  async check({ id, kind, accountId, fence }: ClaimedClawback): Promise<BookedClawback> {
    const told = await this.#processor.clawbacks.find(kind, id);
    // It is not forgotten: the audit compares it with the processor.
    if (!told) return NOTHING;
    testPoint('clawback told');
    const { isFinal } = meaningOf(told);
    return this.#book(told, accountId, (trx) => readAgain(trx, { id, kind, fence }, { status: told.status, isFinal }));
  }

  /** Moves the money as the processor tells, with the row that is written here, in one transaction. */
  async #book(
    told: ProcessorClawback,
    accountId: string,
    write: (trx: Database) => Promise<ClawbackRow | undefined>,
  ): Promise<BookedClawback> {
    const booked = await this.#db.transaction().execute(async (trx) => {
      await lockAccount(trx, accountId);
      const row = await write(trx);
      testPoint('clawback written');
      return row ? { hasMoved: await book(trx, row, meaningOf(told).isTaken), unclear: unclear(told) } : NOTHING;
    });
    testPoint('clawback booked');
    return booked;
  }

  /** The purchase that it takes back, credited if it was not; undefined when it is none of ours. */
  async #purchaseOf({ paymentIntentId }: ListedClawback) {
    if (paymentIntentId === null || this.#foreign.has(paymentIntentId)) return undefined;
    const known = await purchaseOfPayment(this.#db, paymentIntentId);
    if (known) return known;
    const session = await this.#processor.findSessionOfPayment(paymentIntentId);
    const result = session && (await this.#purchases.credit(session));
    if (result?.outcome === 'credited') {
      return { topUpId: session?.metadata?.top_up_id ?? '', accountId: result.credit.accountId };
    }
    if (this.#foreign.size >= MOST_FOREIGN) this.#foreign.clear();
    this.#foreign.add(paymentIntentId);
    return undefined;
  }
}

/** Why it is not certain what a refund or dispute took; undefined when it is. */
function unclear(told: ProcessorClawback): string | undefined {
  const { kind, id, status, currency, amountCents } = told;
  if (currency !== 'usd') return `${kind} ${id} is of ${amountCents} in ${currency}: nothing was booked`;
  if (isStatusKnown(told)) return undefined;
  const what = meaningOf(told).isTaken ? `${amountCents} cents are taken` : 'nothing is taken';
  return `${kind} ${id} has a status that this release does not know, ${status}: ${what}, as its balance transactions say`;
}

/** Moves the money when that has changed. Tells whether it moved. */
async function book(trx: Database, row: ClawbackRow, isTaken: boolean): Promise<boolean> {
  const { id, kind, state, accountId, amountCents, turns } = row;
  const money = (turn: number) => ({
    ...{ accountId, amountMicroUsd: BigInt(amountCents) * MICRO_USD_PER_CENT },
    reference: turn === 1 ? id : `${id}:${turn}`,
  });
  if (isTaken && state !== 'taken') {
    await mark(trx, id, 'taken', turns + 1);
    await takeBack(trx, kind, money(turns + 1));
    return true;
  }
  if (!isTaken && state === 'taken') {
    await mark(trx, id, 'returned', turns);
    await bringBack(trx, kind === 'refund' ? 'refund_failed' : 'dispute_won', money(turns));
    return true;
  }
  return false;
}
