import type { Database } from '../db/database.ts';
import { balanceInvariants } from './audit/balances.ts';
import { chargeInvariants } from './audit/charges.ts';
import { purchaseInvariants } from './audit/credited-purchases.ts';
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
  ...chargeInvariants,
  ...timeInvariants,
  ...guardInvariants,
];

export interface AuditFinding {
  readonly rule: string;
  readonly breaches: readonly Record<string, unknown>[];
}

/** Checks every invariant on one snapshot of the database; each finding holds the rows that break its rule. */
export async function audit(db: Database): Promise<AuditFinding[]> {
  return db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (snapshot) => {
      const findings: AuditFinding[] = [];
      for (const { rule, breaches } of invariants) {
        const { rows } = await breaches.execute(snapshot);
        if (rows.length > 0) findings.push({ rule, breaches: rows });
      }
      return findings;
    });
}
