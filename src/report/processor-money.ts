import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { findInstanceId } from '../ledger/instance.ts';
import { MICRO_USD_PER_CENT } from '../lib/money.ts';
import type { Processor } from '../top-up/processor.ts';
import type { BalanceEntry } from '../top-up/processor-balance.ts';
import type { Comparison, Difference } from './difference.ts';
import type { Period } from './period.ts';

/** The processor's categories of entries that purchases, refunds and disputes make. */
const KINDS: Readonly<Record<string, Item['what']>> = {
  charge: 'purchase',
  refund: 'refund',
  refund_failure: 'refund',
  dispute: 'dispute',
  dispute_reversal: 'dispute',
};

/** A purchase, refund or dispute, and what it has moved in the period, in micro-USD; below 0 when it was taken. */
interface Item {
  readonly what: 'purchase' | 'refund' | 'dispute';
  /** Of the purchase's row, or of the refund or dispute at the processor. */
  readonly id: string;
  readonly microUsd: bigint;
  /** When it last moved something in the period. */
  readonly at: Date;
}

/**
 * Compares what the processor says that purchases, refunds and disputes moved in the period with what the ledger booked.
 * Both are dated by who tells them, so that an item may be in the one's period and out of the other's: that explains it.
 * @throws ProcessorError
 */
export async function compareProcessor(db: Database, processor: Processor, period: Period): Promise<Comparison> {
  const purchases = new Purchases(db, processor);
  const outside = new Map<string, Item>();
  const apart: Record<string, bigint> = {};
  const putApart = (name: string, microUsd: bigint) => {
    if (microUsd !== 0n) apart[name] = (apart[name] ?? 0n) + microUsd;
  };
  for await (const entry of processor.balance.entries(period.from, period.to)) {
    const microUsd = BigInt(entry.amountCents) * MICRO_USD_PER_CENT;
    const what = KINDS[entry.category];
    const id = what && (await purchases.idOf(what, entry));
    putApart('fees', -BigInt(entry.feeCents) * MICRO_USD_PER_CENT);
    if (what && id) add(outside, { what, id, microUsd, at: entry.at });
    else putApart(what ? 'of others' : entry.category, microUsd);
  }
  const ledger = await bookedIn(db, period);
  const differences: Difference[] = [];
  for (const key of new Set([...outside.keys(), ...ledger.keys()])) {
    const item = (outside.get(key) ?? ledger.get(key)) as Item;
    const { what, id } = item;
    const microUsd = (outside.get(key)?.microUsd ?? 0n) - (ledger.get(key)?.microUsd ?? 0n);
    if (microUsd === 0n) continue;
    const because =
      elsewhere('the processor dates it', await purchases.processorTime(what, id), period) ??
      elsewhere('the ledger booked it', await bookedAt(db, what, id), period) ??
      (await onItsWay(db, item));
    differences.push({ what, id, microUsd, because });
  }
  return { outside: total(outside), ledger: total(ledger), differences, apart };
}

const elsewhere = (who: string, at: Date | undefined, { from, to }: Period): string | null =>
  at && (at < from || at >= to) ? `${who} ${at.toISOString()}` : null;

const total = (items: ReadonlyMap<string, Item>): bigint =>
  [...items.values()].reduce((sum, { microUsd }) => sum + microUsd, 0n);

/** The entries come newest first. */
function add(items: Map<string, Item>, { what, id, microUsd, at }: Item): void {
  const key = `${what} ${id}`;
  const known = items.get(key);
  items.set(key, { what, id, microUsd: (known?.microUsd ?? 0n) + microUsd, at: known?.at ?? at });
}

/** Why nothing is booked yet; null when it should be. */
async function onItsWay(db: Database, { what, id, at }: Item): Promise<string | null> {
  const { rows } = await (what === 'purchase'
    ? sql`select from top_up where id = ${id} and state in ('opening', 'open')`
    : sql`select from processor_list where name = ${`${what}s`} and read_until <= ${at}`
  ).execute(db);
  return rows.length > 0 ? 'it is new there: npm run reconcile books it' : null;
}

/** Which of the processor's entries are this service's. */
class Purchases {
  readonly #db: Database;
  readonly #processor: Processor;
  readonly #ids = new Map<string, Promise<string | undefined>>();

  constructor(db: Database, processor: Processor) {
    this.#db = db;
    this.#processor = processor;
  }

  /** Of the purchase, refund or dispute; undefined when it is of what somebody else sold. */
  async idOf(what: Item['what'], { paymentIntentId, source }: BalanceEntry): Promise<string | undefined> {
    const purchase = paymentIntentId === null ? undefined : await this.#purchaseOf(paymentIntentId);
    return what === 'purchase' || purchase === undefined ? purchase : (source ?? undefined);
  }

  /** When the processor last dated it. */
  async processorTime(what: Item['what'], id: string): Promise<Date | undefined> {
    if (what !== 'purchase') return this.#processor.balance.lastChangeBy(id);
    const { rows } = await sql<{ payment: string | null; session: string | null }>`
      select payment_intent_id as payment, session_id as session from top_up where id = ${id}`.execute(this.#db);
    const session =
      rows[0]?.session && !rows[0].payment ? await this.#processor.findSession(rows[0].session) : undefined;
    const payment = rows[0]?.payment ?? session?.payment_intent;
    return typeof payment === 'string' ? this.#processor.balance.chargedAt(payment) : undefined;
  }

  #purchaseOf(paymentIntentId: string): Promise<string | undefined> {
    const known = this.#ids.get(paymentIntentId);
    const found = known ?? this.#find(paymentIntentId);
    this.#ids.set(paymentIntentId, found);
    return found;
  }

  async #find(paymentIntentId: string): Promise<string | undefined> {
    const { rows } = await sql<{ id: string }>`
      select id from top_up where payment_intent_id = ${paymentIntentId} and state = 'credited'`.execute(this.#db);
    if (rows[0]) return rows[0].id;
    // Purchases of earlier releases don't have it.
    const session = await this.#processor.findSessionOfPayment(paymentIntentId);
    return session?.metadata?.instance_id === (await findInstanceId(this.#db)) ? session.metadata.top_up_id : undefined;
  }
}

const BOOKED = sql`
  select transfer.ended_at, transfer.kind,
         case when kind = 'top_up' then 'purchase' when kind like 'refund%' then 'refund' else 'dispute' end as what,
         case when kind = 'top_up' then top_up.id::text else split_part(transfer.reference, ':', 1) end as id,
         case when kind in ('refund', 'dispute') then -amount_micro_usd else amount_micro_usd end as amount
  from transfer left join top_up on kind = 'top_up' and top_up.session_id = transfer.reference
  where kind in ('top_up', 'refund', 'refund_failed', 'dispute', 'dispute_won')`;

async function bookedIn(db: Database, { from, to }: Period): Promise<Map<string, Item>> {
  const { rows } = await sql<Item>`
    select what, id, sum(amount)::bigint as "microUsd", max(ended_at) as at from (${BOOKED}) booked
    where ended_at >= ${from} and ended_at < ${to} group by what, id`.execute(db);
  return new Map(rows.map((item) => [`${item.what} ${item.id}`, item]));
}

async function bookedAt(db: Database, what: Item['what'], id: string): Promise<Date | undefined> {
  const { rows } = await sql<{ at: Date | null }>`
    select max(ended_at) as at from (${BOOKED}) booked where what = ${what} and id = ${id}`.execute(db);
  return rows[0]?.at ?? undefined;
}
