import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { findInstanceId } from '../ledger/instance.ts';
import { eachOf } from '../lib/each-of.ts';
import { isStatusKnown, meaningOf } from '../top-up/clawback-status.ts';
import type { Processor } from '../top-up/processor.ts';
import { ProcessorError } from '../top-up/processor-call.ts';
import {
  type ClawbackKind,
  isUsable,
  type ListedClawback,
  type ProcessorClawback,
} from '../top-up/processor-clawbacks.ts';
import { Findings, type OutsideAudit, type Progress } from './outside.ts';

const IS_BOOKED = 'a refund or dispute of a purchase is booked, or was made since its list was read last';
const FOLLOWS = 'a refund or dispute that is booked is one of that amount at the processor, and follows its status';
export const CLAWBACK_RULES = [IS_BOOKED, FOLLOWS];

/** Refunds and disputes that are asked for at a time. */
const CONCURRENCY = 4;
/** A status that has changed is read again within this time. */
const READ_AGAIN_SECONDS = 86_400;

interface Row {
  readonly id: string;
  readonly account_id: string;
  readonly amount_cents: number;
  readonly status: string;
  readonly state: string;
  /** It should have been read again by now. */
  readonly is_overdue: boolean;
}

const ROW = sql`id, account_id, amount_cents, status, state,
  coalesce(next_check_at < now() - make_interval(secs => ${sql.lit(READ_AGAIN_SECONDS)}), true) as is_overdue`;

/**
 * Compares every refund and dispute with the processor's own records: those of its lists, a hundred a call, and then one
 * by one those that are booked and that the lists don't have. Only reads.
 */
export async function auditClawbacks(db: Database, processor: Processor, progress: Progress): Promise<OutsideAudit> {
  const findings = new Findings(CLAWBACK_RULES);
  let compared = 0;
  try {
    const instanceId = await findInstanceId(db);
    for (const kind of ['refund', 'dispute'] as const) {
      const readUntil = await readUntilOf(db, kind);
      const seen = new Set<string>();
      for (let after: string | undefined; ; ) {
        const { clawbacks, hasMore } = await processor.clawbacks.list(kind, 0, after);
        const rows = await rowsOf(db, clawbacks);
        const ours = await paymentsOf(db, clawbacks);
        for (const each of clawbacks) {
          const row = rows.get(each.id);
          if (row && isUsable(each)) compare(each, row);
          else if (isMissing(each, readUntil) && (await isOurs(each.paymentIntentId, ours, instanceId))) {
            findings.add(IS_BOOKED, shown(each));
          }
          seen.add(each.id);
        }
        compared += clawbacks.length;
        progress(compared);
        if (!hasMore) break;
        after = clawbacks.at(-1)?.id;
      }
      const unseen = (await allRows(db, kind)).filter(({ id }) => !seen.has(id));
      await eachOf(unseen, CONCURRENCY, async (row) => {
        const told = await processor.clawbacks.find(kind, row.id);
        if (told) compare(told, row);
        else
          findings.add(FOLLOWS, { id: row.id, account: row.account_id, fault: 'the processor knows none of that id' });
        compared++;
      });
    }
  } catch (error) {
    if (!(error instanceof ProcessorError)) throw error;
    return { findings: findings.list(), compared, unanswered: [error.message] };
  }
  return { findings: findings.list(), compared, unanswered: [] };

  function compare(told: ProcessorClawback, row: Row): void {
    const follows =
      meaningOf(told).isTaken === (row.state === 'taken') || (told.status !== row.status && !row.is_overdue);
    if (follows && told.amountCents === row.amount_cents) return;
    findings.add(FOLLOWS, {
      ...shown(told),
      account: row.account_id,
      booked: row.state,
      bookedCents: row.amount_cents,
    });
  }

  async function isOurs(payment: string | null, ours: ReadonlySet<string>, instanceId: string): Promise<boolean> {
    if (payment === null || ours.has(payment)) return payment !== null;
    const session = await processor.findSessionOfPayment(payment);
    return session?.metadata?.instance_id === instanceId && session.livemode === processor.livemode;
  }
}

/** It should have a row: it has taken something, or what it has taken is not certain. */
const isMissing = (listed: ListedClawback, readUntil: number): boolean =>
  !isUsable(listed) ||
  (listed.created < readUntil && (meaningOf(listed).isTaken || listed.currency !== 'usd' || !isStatusKnown(listed)));

function shown(listed: ListedClawback) {
  if (!isUsable(listed)) return { id: listed.id, fault: listed.fault };
  const { id, amountCents: cents, currency, status, created } = listed;
  return { id, cents, currency, status, created: new Date(created * 1000).toISOString() };
}

async function readUntilOf(db: Database, kind: ClawbackKind): Promise<number> {
  const { rows } = await sql<{ at: number }>`
    select extract(epoch from read_until)::double precision as at from processor_list
    where name = ${`${kind}s`}`.execute(db);
  return rows[0]?.at ?? 0;
}

async function rowsOf(db: Database, clawbacks: readonly ListedClawback[]): Promise<ReadonlyMap<string, Row>> {
  const ids = clawbacks.map(({ id }) => id);
  const { rows } = await sql<Row>`select ${ROW} from clawback where id = any(${ids}::text[])`.execute(db);
  return new Map(rows.map((row) => [row.id, row]));
}

/** The payments of credited purchases among these. */
async function paymentsOf(db: Database, clawbacks: readonly ListedClawback[]): Promise<ReadonlySet<string>> {
  const payments = clawbacks.flatMap(({ paymentIntentId }) => paymentIntentId ?? []);
  const { rows } = await sql<{ id: string }>`
    select payment_intent_id as id from top_up
    where state = 'credited' and payment_intent_id = any(${payments}::text[])`.execute(db);
  return new Set(rows.map(({ id }) => id));
}

async function allRows(db: Database, kind: ClawbackKind): Promise<Row[]> {
  const { rows } = await sql<Row>`select ${ROW} from clawback where kind = ${kind} order by id`.execute(db);
  return rows;
}
