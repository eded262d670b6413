import { expressionBuilder, type Selection } from 'kysely';
import type { DB } from '../../../db/tables.ts';
import type { Database } from '../../db/database.ts';
import { anyOf, secondsAgo, unixSeconds } from '../../db/expressions.ts';
import { findInstanceId } from '../../ledger/database-identity.ts';
import { eachOf } from '../../lib/each-of.ts';
import { effectOf, isStatusKnown } from '../../payments/top-up/clawbacks.ts';
import { creditPart, type Processor } from '../../payments/top-up/processor.ts';
import {
  type ClawbackKind,
  isUsable,
  type ListedClawback,
  type ProcessorClawback,
} from '../../payments/top-up/processor-clawbacks.ts';
import { auditOutside, type OutsideAudit, type Progress, pagesOfList } from './outside.ts';

const IS_BOOKED = 'each refund and dispute at the card processor is booked, unless it is newer than the last check';
const FOLLOWS = 'each booked refund and dispute exists at the card processor with its amount and a matching status';
export const CLAWBACK_RULES = [IS_BOOKED, FOLLOWS];

const CONCURRENCY = 4;
const READ_AGAIN_SECONDS = 86_400;

const clawback = expressionBuilder<DB, 'clawback'>();
const isDue = clawback('next_check_at', '<', secondsAgo(READ_AGAIN_SECONDS));
const isOverdue = clawback.fn.coalesce(isDue, clawback.lit(true));
const purchase = clawback.selectFrom('top_up').whereRef('top_up.id', '=', 'top_up_id');
const COLUMNS = [
  ...(['id', 'account_id', 'amount_cents', 'status', 'state'] as const),
  isOverdue.as('is_overdue'),
  purchase.select('top_up.amount_cents').as('purchase_cents'),
  purchase.select('tax_cents').as('tax_cents'),
] as const;
type Row = Selection<DB, 'clawback', (typeof COLUMNS)[number]>;

/**
 * Compares the processor's lists of refunds and disputes, then looks up booked ones that are not listed. Only reads.
 */
export function auditClawbacks(db: Database, processor: Processor, progress: Progress): Promise<OutsideAudit> {
  return auditOutside(CLAWBACK_RULES, progress, async ({ add, count }) => {
    const instanceId = await findInstanceId(db);
    for (const kind of ['refund', 'dispute'] as const) {
      const readUntil = await readUntilOf(db, kind);
      const seen = new Set<string>();
      for await (const clawbacks of pagesOfList((after) => processor.clawbacks.list(kind, 0, after))) {
        const rows = await rowsOf(db, clawbacks);
        const ours = await paymentsOf(db, clawbacks);
        for (const each of clawbacks) {
          const row = rows.get(each.id);
          if (row && isUsable(each)) compare(each, row);
          else if (isMissing(each, readUntil) && (await isOurs(each.paymentIntentId, ours, instanceId))) {
            add(IS_BOOKED, shown(each));
          }
          seen.add(each.id);
        }
        count(clawbacks.length);
      }
      const unseen = (await allRows(db, kind)).filter(({ id }) => !seen.has(id));
      await eachOf(unseen, CONCURRENCY, async (row) => {
        const current = await processor.clawbacks.find(kind, row.id);
        if (current) compare(current, row);
        else
          add(FOLLOWS, {
            id: row.id,
            account: row.account_id,
            fault: 'the card processor has no refund or dispute with this id',
          });
        count(1);
      });
    }
    return [];

    function compare(current: ProcessorClawback, row: Row): void {
      const follows =
        effectOf(current).isTaken === (row.state === 'taken') || (current.status !== row.status && !row.is_overdue);
      const amounts = { amountCents: row.purchase_cents ?? 0, taxCents: row.tax_cents ?? 0 };
      if (follows && creditPart(current.amountCents, amounts) === row.amount_cents) return;
      add(FOLLOWS, { ...shown(current), account: row.account_id, booked: row.state, bookedCents: row.amount_cents });
    }
  });

  async function isOurs(payment: string | null, ours: ReadonlySet<string>, instanceId: string): Promise<boolean> {
    if (payment === null || ours.has(payment)) return payment !== null;
    const session = await processor.findSessionOfPayment(payment);
    return session?.metadata?.instance_id === instanceId && session.livemode === processor.livemode;
  }
}

/** Whether a refund or dispute without a row breaks the rule: it took money, or may have taken some. */
const isMissing = (listed: ListedClawback, readUntil: number): boolean =>
  !isUsable(listed) ||
  (listed.created < readUntil && (effectOf(listed).isTaken || listed.currency !== 'usd' || !isStatusKnown(listed)));

function shown(listed: ListedClawback) {
  if (!isUsable(listed)) return { id: listed.id, fault: listed.fault };
  const { id, amountCents: cents, currency, status, created } = listed;
  return { id, cents, currency, status, created: new Date(created * 1000).toISOString() };
}

async function readUntilOf(db: Database, kind: ClawbackKind): Promise<number> {
  const lists = db.selectFrom('processor_list').select((eb) => unixSeconds(eb.ref('read_until')).as('at'));
  return (await lists.where('name', '=', `${kind}s`).executeTakeFirst())?.at ?? 0;
}

async function rowsOf(db: Database, clawbacks: readonly ListedClawback[]): Promise<ReadonlyMap<string, Row>> {
  const ids = clawbacks.map(({ id }) => id);
  const rows = await db.selectFrom('clawback').select(COLUMNS).where('id', '=', anyOf(ids)).execute();
  return new Map(rows.map((row) => [row.id, row]));
}

async function paymentsOf(db: Database, clawbacks: readonly ListedClawback[]): Promise<ReadonlySet<string>> {
  const payments = clawbacks.flatMap(({ paymentIntentId }) => paymentIntentId ?? []);
  const purchases = db.selectFrom('top_up').select('payment_intent_id').where('state', '=', 'credited');
  const rows = await purchases.where('payment_intent_id', '=', anyOf(payments)).execute();
  return new Set(rows.flatMap(({ payment_intent_id }) => payment_intent_id ?? []));
}

const allRows = (db: Database, kind: ClawbackKind): Promise<Row[]> =>
  db.selectFrom('clawback').select(COLUMNS).where('kind', '=', kind).orderBy('id').execute();
