import type { Database } from '../db/database.ts';
import { type Processor, ProcessorError } from '../top-up/processor.ts';
import type { Purchases } from '../top-up/purchases.ts';
import { abandonPass, advancePass, beginPass, endPass, type Pass } from '../top-up/sweep-pass.ts';
import { creditListed } from './credit-listed.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

/** Once in five minutes at the default interval. */
const EVERY_TURNS = 20;
/** Pages read in one turn, at most; the next turn goes on from there. */
const MOST_PAGES = 50;
/**
 * Credits orphans: paid sessions of this service that its own rows don't know, or not by their id, as after a crash
 * before the processor's answer was recorded, or when an older backup was restored (R16).
 *
 * A pass reads the processor's list of completed sessions from the newest back to the watermark, and then moves the
 * watermark to where nothing can be paid any more. Counts credits.
 */
export function checkoutSweep(db: Database, processor: Processor, purchases: Purchases): Reconciler {
  return {
    name: 'checkout_sweep',
    everyTurns: EVERY_TURNS,
    async run(turn) {
      const failures = new Failures();
      let pass: Pass | undefined = await beginPass(db);
      for (let pages = 0; pass && pages < MOST_PAGES && !turn.signal.aborted; pages++) {
        const { sessions, hasMore } = await list(pass);
        await creditListed(db, purchases, sessions, failures, turn);
        if (!hasMore) await endPass(db, pass);
        pass = hasMore ? await advancePass(db, pass, sessions.at(-1)?.id) : undefined;
      }
      failures.check();
    },
  };

  /** A cursor that the processor does not know (any more) would fail for ever: the pass begins anew. */
  async function list(pass: Pass) {
    const cursor = pass.pass_cursor ?? undefined;
    try {
      return await processor.listSessions(pass.created_from, cursor);
    } catch (error) {
      if (cursor && error instanceof ProcessorError && (error.status === 400 || error.status === 404)) {
        await abandonPass(db, pass);
      }
      throw error;
    }
  }
}
