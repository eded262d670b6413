import { type Selection, sql } from 'kysely';
import type Stripe from 'stripe';
import type { DB } from '../../../db/tables.ts';
import type { Database } from '../../db/database.ts';
import { anyFrom, anyOf, now, secondsAgo, secondsFromNow, secondsSince, timestamp } from '../../db/expressions.ts';
import { applyClawback, lockAccount, reverseClawback } from '../../ledger/debts.ts';
import { formatUsd, MICRO_USD_PER_CENT } from '../../lib/money.ts';
import { testPoint } from '../../lib/test-point.ts';
import { purchaseOfPayment } from './credit-top-up.ts';
import { amountsOf, creditPart, type Processor, type PurchaseAmounts } from './processor.ts';
import { type ClawbackKind, isUsable, type ListedClawback, type ProcessorClawback } from './processor-clawbacks.ts';
import type { Purchases } from './purchases.ts';

/** Whether the processor has taken the money for now, and whether that rarely changes any more. */
type ClawbackEffect = { readonly isTaken: boolean; readonly isFinal: boolean };

const taken = { isTaken: true, isFinal: false };
const takenAtLast = { isTaken: true, isFinal: true };
const left = { isTaken: false, isFinal: false };
const leftAtLast = { isTaken: false, isFinal: true };

type RefundStatus = 'pending' | 'requires_action' | 'succeeded' | 'failed' | 'canceled';
type Listed<Status> = Status extends string ? (string extends Status ? never : Status) : never;

const REFUND: Readonly<Record<RefundStatus, ClawbackEffect>> = {
  pending: taken,
  succeeded: takenAtLast,
  requires_action: left,
  failed: leftAtLast,
  canceled: leftAtLast,
};

/** An inquiry (`warning_…`) takes nothing. An appeal follows a lost dispute. */
const DISPUTE: Readonly<Record<Listed<Stripe.Dispute.Status>, ClawbackEffect>> = {
  needs_response: taken,
  under_review: taken,
  lost: takenAtLast,
  appeal_needs_response: taken,
  appeal_under_review: taken,
  won: leftAtLast,
  warning_needs_response: left,
  warning_under_review: left,
  warning_closed: leftAtLast,
  prevented: leftAtLast,
};

const EFFECTS: Readonly<Record<ClawbackKind, Readonly<Record<string, ClawbackEffect>>>> = {
  refund: REFUND,
  dispute: DISPUTE,
};

export const isStatusKnown = ({ kind, status }: Pick<ProcessorClawback, 'kind' | 'status'>): boolean =>
  Object.hasOwn(EFFECTS[kind], status);

/** Effect on the account (R61). For an unknown status, balance transactions decide. Other currencies take nothing. */
export function effectOf(
  current: Pick<ProcessorClawback, 'kind' | 'status' | 'currency' | 'isWithdrawn'>,
): ClawbackEffect {
  const known = isStatusKnown(current) ? EFFECTS[current.kind][current.status] : undefined;
  const { isTaken, isFinal } = known ?? { isTaken: current.isWithdrawn, isFinal: false };
  return { isTaken: isTaken && current.currency === 'usd', isFinal };
}

const FINAL_SECONDS = 60 * 86_400;
const SHORTEST_PAUSE_SECONDS = 60;
const LONGEST_PAUSE_SECONDS = 86_400;

const COLUMNS = ['id', 'account_id as accountId', 'amount_cents as amountCents', 'state', 'turns'] as const;
type ClawbackRow = Selection<DB, 'clawback', (typeof COLUMNS)[number]>;

interface ClaimedClawback {
  readonly id: string;
  readonly kind: ClawbackKind;
  readonly accountId: string;
  /** A later claim has a higher fence, which invalidates this one's result. */
  readonly fence: number;
}

async function insertClawback(
  trx: Database,
  { id, kind, chargeId, amountCents, currency, status, created }: ProcessorClawback,
  { topUpId, accountId, ...purchase }: { readonly topUpId: string; readonly accountId: string } & PurchaseAmounts,
): Promise<ClawbackRow | undefined> {
  return trx
    .insertInto('clawback')
    .values({
      id,
      kind,
      top_up_id: topUpId,
      account_id: accountId,
      charge_id: chargeId,
      amount_cents: creditPart(amountCents, purchase),
      currency,
      status,
      is_status_known: isStatusKnown({ kind, status }),
      created_at: ({ fn, val }) => fn('to_timestamp', [val(created)]),
      next_check_at: secondsFromNow(SHORTEST_PAUSE_SECONDS),
    })
    .onConflict((conflict) => conflict.doNothing())
    .returning(COLUMNS)
    .executeTakeFirst();
}

/**
 * Returns the entries without a row. Rows with another status become due at once. A row that was due keeps its place:
 * otherwise each pass would put it behind all others. A locked row is being checked already.
 */
export async function unknownOf(db: Database, listed: readonly ListedClawback[]): Promise<readonly ListedClawback[]> {
  if (listed.length === 0) return [];
  const ids = listed.map(({ id }) => id);
  const rows = await db.selectFrom('clawback').select(['id', 'status']).where('id', '=', anyOf(ids)).execute();
  const known = new Map(rows.map(({ id, status }) => [id, status]));
  const changed = listed
    .filter(isUsable)
    .filter(({ id, status }) => known.has(id) && known.get(id) !== status)
    .map(({ id }) => id);
  if (changed.length > 0) {
    const free = db.selectFrom('clawback').select('id').where('id', '=', anyOf(changed)).orderBy('id');
    const unlocked = db.updateTable('clawback').where('id', '=', anyFrom(free.forUpdate().skipLocked()));
    await unlocked.set('next_check_at', ({ fn }) => fn('least', ['next_check_at', now])).execute();
  }
  return listed.filter(({ id }) => !known.has(id));
}

export async function claimDueClawback(db: Database, begin: string): Promise<ClaimedClawback | undefined> {
  const due = db.selectFrom('clawback').select('id').where('next_check_at', '<', timestamp(begin));
  return db
    .updateTable('clawback')
    .set((eb) => {
      const eighth = eb(secondsSince(eb.ref('created_at')), '/', 8);
      const pause = eb.fn<number>('greatest', [eighth, eb.val(SHORTEST_PAUSE_SECONDS)]);
      const next_check_at = secondsFromNow(eb.fn('least', [pause, eb.val(LONGEST_PAUSE_SECONDS)]));
      return { fence: eb('fence', '+', 1), next_check_at };
    })
    .where('id', '=', due.orderBy('next_check_at').limit(sql.lit(1)).forUpdate().skipLocked())
    .returning(['id', 'kind', 'account_id as accountId', 'fence'])
    .$narrowType<{ kind: ClawbackKind }>()
    .executeTakeFirst();
}

async function readAgain(
  trx: Database,
  { id, kind, fence }: Pick<ClaimedClawback, 'id' | 'kind' | 'fence'>,
  { status, isFinal }: { status: string; isFinal: boolean },
): Promise<ClawbackRow | undefined> {
  const current = { status, is_status_known: isStatusKnown({ kind, status }) };
  const clawback = trx.updateTable('clawback').set(current).where('id', '=', id).where('fence', '=', fence);
  const ended = clawback.set('next_check_at', (eb) =>
    eb.case().when('created_at', '>=', secondsAgo(FINAL_SECONDS)).then(eb.ref('next_check_at')).end(),
  );
  return (isFinal ? ended : clawback).returning(COLUMNS).executeTakeFirst();
}

/** Payments of other services that are remembered, so that each is looked up once. */
const MOST_FOREIGN = 10_000;

export interface BookedClawback {
  readonly hasMoved: boolean;
  /** Why an operator should check whether this was all. */
  readonly unclear?: string | undefined;
}

const NOTHING: BookedClawback = { hasMoved: false };

/**
 * Books what the processor takes back of purchases and returns, each time once (R61). It books what the present status
 * means, so that order, repetition and reader do not matter:
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

  /** Records an entry of the processor's list that has no row yet (`unknownOf`). */
  async record(listed: ListedClawback): Promise<BookedClawback> {
    const purchase = await this.#purchaseOf(listed);
    if (!purchase) return NOTHING;
    if (!isUsable(listed)) {
      const { kind, id, fault } = listed;
      return {
        hasMoved: false,
        unclear: `${kind} ${id} has ${fault} at the card processor, so the buyer's account was not changed. Check it at the processor`,
      };
    }
    testPoint('clawback listed');
    return this.#book(listed, purchase.accountId, (trx) => insertClawback(trx, listed, purchase));
  }

  async check({ id, kind, accountId, fence }: ClaimedClawback): Promise<BookedClawback> {
    const current = await this.#processor.clawbacks.find(kind, id);
    // The row stays, because the audit compares it with the processor.
    if (!current) return NOTHING;
    testPoint('clawback told');
    const { isFinal } = effectOf(current);
    return this.#book(current, accountId, (trx) =>
      readAgain(trx, { id, kind, fence }, { status: current.status, isFinal }),
    );
  }

  /** Writes the row and moves the money in one transaction. */
  async #book(
    current: ProcessorClawback,
    accountId: string,
    write: (trx: Database) => Promise<ClawbackRow | undefined>,
  ): Promise<BookedClawback> {
    const booked = await this.#db.transaction().execute(async (trx) => {
      await lockAccount(trx, accountId);
      const row = await write(trx);
      testPoint('clawback written');
      return row ? { hasMoved: await book(trx, row, current), unclear: unclear(current) } : NOTHING;
    });
    testPoint('clawback booked');
    return booked;
  }

  /** Finds the purchase, and credits it if it was not; undefined if it is none of ours. */
  async #purchaseOf({ paymentIntentId }: ListedClawback) {
    if (paymentIntentId === null || this.#foreign.has(paymentIntentId)) return undefined;
    const known = await purchaseOfPayment(this.#db, paymentIntentId);
    if (known) return known;
    const session = await this.#processor.findSessionOfPayment(paymentIntentId);
    const result = session && (await this.#purchases.credit(session));
    if (session && result?.outcome === 'credited') {
      const topUpId = session.metadata?.top_up_id ?? '';
      return { topUpId, accountId: result.credit.accountId, ...amountsOf(session) };
    }
    if (this.#foreign.size >= MOST_FOREIGN) this.#foreign.clear();
    this.#foreign.add(paymentIntentId);
    return undefined;
  }
}

function unclear(current: ProcessorClawback): string | undefined {
  const { kind, id, status, currency, amountCents } = current;
  if (currency !== 'usd')
    return `${kind} ${id} of ${amountCents} minor units (such as cents) is in ${currency}, but only USD is supported, so the buyer's account was not changed. Check it at the card processor`;
  if (isStatusKnown(current)) return undefined;
  const what = effectOf(current).isTaken
    ? `${formatUsd(BigInt(amountCents) * MICRO_USD_PER_CENT)} USD is taken from you, so the buyer's account is debited for it`
    : "nothing is taken from you, so the buyer's account is not debited for it";
  return `${kind} ${id} has the status ${status}, which this release does not know. According to its balance transactions, ${what}. Check it at the card processor`;
}

async function book(trx: Database, row: ClawbackRow, current: ProcessorClawback): Promise<boolean> {
  const { id, state, accountId, amountCents, turns } = row;
  const { isTaken } = effectOf(current);
  const clawback = trx.updateTable('clawback').where('id', '=', id);
  const amountMicroUsd = BigInt(amountCents) * MICRO_USD_PER_CENT;
  const money = (turn: number) => ({ accountId, amountMicroUsd, reference: turn === 1 ? id : `${id}:${turn}` });
  if (isTaken && state !== 'taken') {
    await clawback.set({ state: 'taken', turns: turns + 1 }).execute();
    await applyClawback(trx, current.kind, money(turns + 1));
    return true;
  }
  if (!isTaken && state === 'taken') {
    await clawback.set({ state: 'returned' }).execute();
    await reverseClawback(trx, current.kind === 'refund' ? 'refund_failed' : 'dispute_won', money(turns));
    return true;
  }
  return false;
}
