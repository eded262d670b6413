import type { AudioStore } from '../audio/store.ts';
import type { Config } from '../config.ts';
import type { Database } from '../db/database.ts';
import { Processor } from '../top-up/processor.ts';
import { Purchases } from '../top-up/purchase.ts';
import { checkoutSweep } from './checkout-sweep.ts';
import { expiredAudio } from './expired-audio.ts';
import { expiredHolds } from './expired-holds.ts';
import { lostJobs } from './lost-jobs.ts';
import type { Reconciler } from './reconciler.ts';
import { topUps } from './top-ups.ts';

/** The reconcilers of the flows that are on. */
export function createReconcilers(
  { baseUrl, serviceName, card }: Config,
  db: Database,
  store: AudioStore,
): Reconciler[] {
  const reconcilers = [expiredHolds(db), lostJobs(db), expiredAudio(db, store)];
  if (card) {
    // The next turn is the retry.
    const processor = new Processor(card.secretKey, card.apiBase, { retries: 0 });
    const purchases = new Purchases(db, processor, { baseUrl, serviceName });
    reconcilers.push(topUps(db, processor, purchases), checkoutSweep(db, processor, purchases));
  }
  return reconcilers;
}
