import type { Database } from '../db/database.ts';
import type { Processor } from '../top-up/processor.ts';
import type { Purchases } from '../top-up/purchases.ts';
import { creditListed } from './credit-listed.ts';
import { Failures } from './failures.ts';
import { runPass } from './processor-pass.ts';
import type { Reconciler } from './reconciler.ts';

/** Once in five minutes at the default interval. */
const EVERY_TURNS = 20;
/**
 * Credits orphans: paid sessions of this service that its own rows don't know, or not by their id, as after a crash
 * before the processor's answer was recorded, or when an older backup was restored (R16). Counts credits.
 */
export function checkoutSweep(db: Database, processor: Processor, purchases: Purchases): Reconciler {
  return {
    name: 'checkout_sweep',
    everyTurns: EVERY_TURNS,
    async run(turn) {
      const failures = new Failures();
      await runPass(
        db,
        'sessions',
        {
          async read(createdFrom, after) {
            const { sessions, hasMore } = await processor.listSessions(createdFrom, after);
            return { entries: sessions, hasMore };
          },
          // What fails is listed again for a day, since the watermark stays that far behind. The audit names the rest.
          handle: async (sessions) => {
            await creditListed(db, purchases, sessions, failures, turn);
            return true;
          },
        },
        turn,
      );
      failures.check();
    },
  };
}
