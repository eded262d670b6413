import { addDoubtGauge, addHoldGauges } from '../admin/gauges.ts';
import { GroupedStatement } from '../db/grouped-statement.ts';
import { type Captured, captureHolds } from '../ledger/hold.ts';
import { UnpaidWork } from '../limits/unpaid-work.ts';
import { GivingBack } from '../payments/giving-back.ts';
import type { HoldKeeperParts } from '../payments/hold-keeper.ts';
import { UnfinishedHolds } from '../payments/unfinished-holds.ts';
import { ledgerReconcilers } from '../reconcile/reconcilers.ts';
import type { Feature, SharedParts } from './feature.ts';

export interface Holds extends Feature {
  /** What the holds of one flow's balances need; the unpaid work is counted for each flow by itself. */
  parts(): HoldKeeperParts;
}

/** Holds on balances in the ledger, which card credits and prepaid balances are paid by. */
export function openHolds({ config, db, log, metrics }: SharedParts): Holds {
  const unfinished = new UnfinishedHolds(db, log);
  const givingBack = new GivingBack(db, log);
  const captures = new GroupedStatement({
    run: (holds: readonly Captured[]) => captureHolds(db, holds),
    keyOf: ({ id }) => id,
  });
  addHoldGauges(metrics, db);
  addDoubtGauge(metrics, givingBack);
  return {
    reconcilers: ledgerReconcilers(db, config),
    parts: () => ({
      ...{ db, log, metrics, unfinished, givingBack, captures },
      capturePatienceMs: config.capturePatienceMs,
      leaseSeconds: config.speech?.streaming.leaseSeconds ?? 0,
      work: new UnpaidWork(config.unpaidWork),
    }),
    close: async () => {
      await givingBack.stop();
      await unfinished.stop();
    },
  };
}
