import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import {
  claimDuePurchase,
  endNeverOpened,
  expirePurchase,
  GIVE_UP_SECONDS,
  MARGIN_SECONDS,
  type OpenPurchase,
  readTurnBegin,
  SESSION_SECONDS,
} from '../top-up/open-purchases.ts';
import type { Processor } from '../top-up/processor.ts';
import type { Purchases } from '../top-up/purchases.ts';
import { creditListed } from './credit-listed.ts';
import { Failures } from './failures.ts';
import type { Reconciler, Turn } from './reconciler.ts';

/** Sessions that are retrieved in one turn, at most. */
const MOST_CHECKS = 25;
/** Pages of the processor's list that are read in one turn, at most, when more purchases than that are due. */
const MOST_PAGES = 5;
/**
 * Credits the paid sessions of buyers who never came back, and closes the purchases that came to nothing (R16).
 *
 * Each open purchase's session is retrieved in every turn of its first hour, then ever more rarely, and once when its
 * time is over. When so many are due that not all have their turn, the completed sessions of the last hour are listed
 * too: a list costs one call for a hundred of them, however many buyers have gone away without paying. Counts credits.
 */
export function topUps(db: Database, processor: Processor, purchases: Purchases): Reconciler {
  return {
    name: 'top_ups',
    async run(turn) {
      const failures = new Failures();
      await endNeverOpened(db);
      const { begin, young_since } = await readTurnBegin(db);
      let checks = 0;
      for (; checks < MOST_CHECKS && !turn.signal.aborted; checks++) {
        const purchase = await claimDuePurchase(db, begin);
        if (!purchase) break;
        testPoint('purchase claimed');
        try {
          await check(purchase, turn);
        } catch (error) {
          failures.add(error);
        }
      }
      if (checks === MOST_CHECKS) await readList(young_since, failures, turn);
      failures.check();
    },
  };

  async function check({ id, session_id, age_seconds, claimed_at }: OpenPurchase, { done }: Turn): Promise<void> {
    const session = await processor.findSession(session_id);
    const result = session && (await purchases.credit(session));
    if (result?.outcome === 'credited') {
      if (!result.credit.alreadyCredited) done(1);
      return;
    }
    const isOver = session ? session.status === 'expired' : age_seconds > SESSION_SECONDS + MARGIN_SECONDS;
    testPoint('purchase unpaid');
    if (isOver || age_seconds > GIVE_UP_SECONDS) await expirePurchase(db, id, claimed_at);
  }

  async function readList(createdFrom: number, failures: Failures, turn: Turn): Promise<void> {
    let after: string | undefined;
    for (let pages = 0; pages < MOST_PAGES && !turn.signal.aborted; pages++) {
      const { sessions, hasMore } = await processor.listSessions(createdFrom, after);
      await creditListed(db, purchases, sessions, failures, turn);
      if (!hasMore) return;
      after = sessions.at(-1)?.id;
    }
  }
}
