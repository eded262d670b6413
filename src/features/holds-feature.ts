import { addHoldGauges } from '../http/admin/gauges.ts';
import { holdLeases } from '../ledger/hold.ts';
import { Captures, type HoldPlacerParts } from '../payments/hold-placer.ts';
import { UnpaidWorkLimiter } from '../payments/limits/unpaid-work-limiter.ts';
import { ledgerReconcilers } from '../reconcile/reconcilers.ts';
import type { SharedParts } from './feature.ts';

export type Holds = ReturnType<typeof openHolds>;

export function openHolds({ config, db, log, metrics }: SharedParts) {
  const captures = new Captures(db, log, config.maxWaitingCaptures);
  const leases = holdLeases(db, config.holdLeaseSeconds);
  addHoldGauges(metrics, db, captures);
  return {
    reconcilers: ledgerReconcilers(db, config.holdLeaseSeconds),
    /** One set per flow, because each flow counts its unpaid work separately. */
    parts: (): HoldPlacerParts => ({
      db,
      metrics,
      leases,
      captures,
      unpaidWork: new UnpaidWorkLimiter(config.unpaidWork),
    }),
    end: async () => captures.stop(),
    close: async () => captures.close(),
  };
}
