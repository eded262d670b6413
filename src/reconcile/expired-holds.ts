import type { Database } from '../db/database.ts';
import { voidExpiredHolds } from '../ledger/hold.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Reconciler } from './reconciler.ts';

/** Gives back what dead processes hold: `ledger/hold.ts` voids each whose lease has ended. Counts holds. */
export function expiredHolds(db: Database, leaseSeconds: number): Reconciler {
  return {
    name: 'expired_holds',
    async run({ signal, done }) {
      let voided: number;
      do {
        voided = await voidExpiredHolds(db, leaseSeconds);
        testPoint('expired holds voided');
        done(voided);
      } while (voided > 0 && !signal.aborted);
    },
  };
}
