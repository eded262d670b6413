import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { adjustmentInvariants } from './audit/adjustments.ts';
import { balanceInvariants } from './audit/balances.ts';
import { chargeInvariants } from './audit/charges.ts';
import { purchaseInvariants } from './audit/credited-purchases.ts';
import { debtInvariants } from './audit/debts.ts';
import { guardInvariants } from './audit/guards.ts';
import type { Invariant } from './audit/invariant.ts';
import { timeInvariants } from './audit/times.ts';
import { underWayInvariants } from './audit/under-way.ts';
import { paymentInvariants } from './audit/unsettled-payments.ts';

/** What holds in the ledger at any moment. */
export const invariants: readonly Invariant[] = [
  ...balanceInvariants,
  ...underWayInvariants,
  ...paymentInvariants,
  ...purchaseInvariants,
  ...debtInvariants,
  ...chargeInvariants,
  ...adjustmentInvariants,
  ...timeInvariants,
  ...guardInvariants,
];

/** Breaches of a rule that are told, at most: of a broken ledger there may be millions. */
const MOST_BREACHES = 1000;

export interface AuditFinding {
  readonly rule: string;
  readonly breaches: readonly Record<string, unknown>[];
}

/** Told the rule that is checked next; its result is told when that is done. */
export type AuditProgress = (rule: string) => () => void;

/**
 * Checks every invariant on one snapshot of the database; each finding holds the first rows that break its rule. A rule
 * joins whole tables: for that it may use this much memory, several times, and the disk beyond that.
 */
export async function audit(db: Database, progress: AuditProgress = () => () => {}): Promise<AuditFinding[]> {
  return db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (snapshot) => {
      // All rows are wanted, not the first ones soon.
      await sql`set local cursor_tuple_fraction = 1`.execute(snapshot);
      await sql`set local work_mem = '64MB'`.execute(snapshot);
      const findings: AuditFinding[] = [];
      for (const { rule, breaches } of invariants) {
        const checked = progress(rule);
        const rows = await firstOf(snapshot, breaches);
        checked();
        if (rows.length > 0) findings.push({ rule, breaches: rows });
      }
      return findings;
    });
}

async function firstOf(snapshot: Database, breaches: Invariant['breaches']): Promise<Record<string, unknown>[]> {
  await sql`declare breach no scroll cursor for ${breaches}`.execute(snapshot);
  const { rows } = await sql<Record<string, unknown>>`fetch ${sql.lit(MOST_BREACHES)} from breach`.execute(snapshot);
  await sql`close breach`.execute(snapshot);
  return rows;
}
