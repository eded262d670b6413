import type { Database } from '../db/database.ts';
import { bringBack, lockAccount, takeBack } from '../ledger/debts.ts';
import { MICRO_USD_PER_CENT } from '../lib/money.ts';
import { testPoint } from '../lib/test-point.ts';
import { type ClaimedClawback, type ClawbackRow, insertClawback, mark, readAgain } from './clawback-rows.ts';
import { meaningOf } from './clawback-status.ts';
import { purchaseOfPayment } from './credit-top-up.ts';
import type { Processor } from './processor.ts';
import type { ProcessorClawback } from './processor-clawbacks.ts';
import type { Purchases } from './purchases.ts';

/** Payments of others than us that are remembered, so that the processor is asked for each of them once. */
const MOST_FOREIGN = 10_000;

/** A status that this release does not know: whether the money was taken can't be told. */
class UnknownStatusError extends Error {}

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
   * Records one that was read from the processor's list, and that nothing was known of (`unknownOf`). Tells whether money
   * moved.
   * @throws an error that names a status which this release does not know; what has it is written down, and asked for again
   * @throws ProcessorError when it can't be asked whose payment it is
   */
  async record(listed: ProcessorClawback): Promise<boolean> {
    const purchase = await this.#purchaseOf(listed);
    if (!purchase) return false;
    testPoint('clawback listed');
    return this.#book(purchase.accountId, (trx) => insertClawback(trx, listed, purchase));
  }

  /** Asks the processor for one that was claimed, and books what that means now. Tells whether money moved. */
  async check({ id, kind, accountId, fence }: ClaimedClawback): Promise<boolean> {
    const told = await this.#processor.clawbacks.find(kind, id);
    // It is not forgotten: the audit compares it with the processor.
    if (!told) return false;
    testPoint('clawback told');
    const isFinal = meaningOf(kind, told.status)?.isFinal ?? false;
    return this.#book(accountId, (trx) => readAgain(trx, { id, fence, status: told.status, isFinal }));
  }

  /** Moves the money as the row says that is written here, in one transaction. What is not understood stays written. */
  async #book(accountId: string, write: (trx: Database) => Promise<ClawbackRow | undefined>): Promise<boolean> {
    const booked = await this.#db.transaction().execute(async (trx) => {
      await lockAccount(trx, accountId);
      const row = await write(trx);
      testPoint('clawback written');
      return row ? book(trx, row) : false;
    });
    testPoint('clawback booked');
    if (booked instanceof UnknownStatusError) throw booked;
    return booked;
  }

  /** The purchase that it takes back, credited if it was not; undefined when it is none of ours. */
  async #purchaseOf({ paymentIntentId, currency }: ProcessorClawback) {
    if (paymentIntentId === null || currency !== 'usd' || this.#foreign.has(paymentIntentId)) return undefined;
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

/** Moves the money as the row's status says. Tells whether it moved. */
async function book(trx: Database, row: ClawbackRow): Promise<boolean | UnknownStatusError> {
  const { id, kind, status, state, accountId, amountCents, turns } = row;
  const meaning = meaningOf(kind, status);
  if (!meaning)
    throw new UnknownStatusError(`the processor's ${kind} has the status ${status}, which is not known here`);
  const money = (turn: number) => ({
    ...{ accountId, amountMicroUsd: BigInt(amountCents) * MICRO_USD_PER_CENT },
    reference: turn === 1 ? id : `${id}:${turn}`,
  });
  if (meaning.isTaken && state !== 'taken') {
    await mark(trx, id, 'taken', turns + 1);
    await takeBack(trx, kind, money(turns + 1));
    return true;
  }
  if (!meaning.isTaken && state === 'taken') {
    await mark(trx, id, 'returned', turns);
    await bringBack(trx, kind === 'refund' ? 'refund_failed' : 'dispute_won', money(turns));
    return true;
  }
  return false;
}
