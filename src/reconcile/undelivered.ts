import type { Database } from '../db/database.ts';
import {
  deadProcesses,
  forgetProcess,
  judgeProcesses,
  UNDELIVERED_BATCH,
  undeliveredCharges,
} from '../ledger/gateway-process.ts';
import { reverseCharge } from '../ledger/reversal.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Reconciler } from './reconciler.ts';

/** Gives back what dead processes have charged and not delivered. Counts charges. */
export function undelivered(db: Database): Reconciler {
  return {
    name: 'undelivered',
    async run({ signal, done }) {
      await judgeProcesses(db);
      testPoint('processes judged');
      for (const process of await deadProcesses(db)) {
        let charges: bigint[];
        do {
          charges = await undeliveredCharges(db, process);
          for (const id of charges) {
            if (signal.aborted) return;
            if (await reverseCharge(db, id, 'process_died')) done(1);
            testPoint('charge reversed');
          }
        } while (charges.length === UNDELIVERED_BATCH);
        if (!process.isHolding) await forgetProcess(db, process.id);
      }
    },
  };
}
