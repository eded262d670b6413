import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { Processor } from '../top-up/processor.ts';
import type { Purchases } from '../top-up/purchase.ts';
import { creditListed } from './credit-listed.ts';
import { Failures } from './failures.ts';
import type { Reconciler, Turn } from './reconciler.ts';

/** Sessions that are retrieved in one turn, at most. */
const MOST_CHECKS = 25;
/** Pages of the processor's list that are read in one turn, at most, when more purchases than that are due. */
const MOST_PAGES = 5;
/** A purchase younger than this is looked at in every turn. */
const YOUNG_SECONDS = 3600;
/** A session can be paid for 24 hours (Stripe's default); what it came to is certain a little later. */
const SESSION_SECONDS = 86_400;
const MARGIN_SECONDS = 60;
/** How long a session is asked for that has neither been paid nor expired, as with a payment that takes days to clear. */
const GIVE_UP_SECONDS = 14 * 86_400;
/** For how long the processor's word that a session came to nothing is acted on: a process may be frozen meanwhile. */
const VERDICT_SECONDS = 60;

interface OpenPurchase {
  readonly id: string;
  readonly session_id: string;
  readonly age_seconds: number;
  /** When it was claimed, by the database's clock with its microseconds. */
  readonly claimed_at: string;
}

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
      const { begin, young_since } = await turnBegin(db);
      let checks = 0;
      for (; checks < MOST_CHECKS && !turn.signal.aborted; checks++) {
        const purchase = await claimDue(db, begin);
        if (!purchase) break;
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
    if (isOver || age_seconds > GIVE_UP_SECONDS) await expire(db, id, claimed_at);
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

async function turnBegin(db: Database): Promise<{ begin: string; young_since: number }> {
  const { rows } = await sql<{ begin: string; young_since: number }>`
    select now()::text as begin,
           floor(extract(epoch from now()) - ${YOUNG_SECONDS + MARGIN_SECONDS})::double precision as young_since`.execute(
    db,
  );
  return rows[0] as { begin: string; young_since: number };
}

/**
 * The open purchase that has been due the longest. The time of its next check is set before the processor is called, so
 * that one that always fails goes to the end of the queue too.
 */
async function claimDue(db: Database, begin: string): Promise<OpenPurchase | undefined> {
  const { rows } = await sql<OpenPurchase>`
    with due as materialized (
      select id, extract(epoch from now() - created_at)::double precision as age from top_up
      where state = 'open' and next_check_at < ${begin}::timestamptz
      order by next_check_at limit 1 for update skip locked
    )
    update top_up set next_check_at = case
      when age < ${YOUNG_SECONDS} then now()
      when age < ${SESSION_SECONDS} then
        least(now() + make_interval(secs => age / 4),
              created_at + make_interval(secs => ${SESSION_SECONDS + MARGIN_SECONDS}))
      else now() + make_interval(secs => least(age, ${GIVE_UP_SECONDS}) / 4)
    end
    from due where top_up.id = due.id
    returning top_up.id, session_id, age as age_seconds, now()::text as claimed_at`.execute(db);
  return rows[0];
}

async function expire(db: Database, id: string, claimedAt: string): Promise<void> {
  await sql`
    update top_up set state = 'expired'
    where id = ${id} and state = 'open'
      and now() < ${claimedAt}::timestamptz + make_interval(secs => ${VERDICT_SECONDS})`.execute(db);
}

/** Ends the purchases whose session nobody can have paid any more: the process died, or the processor refused. */
async function endNeverOpened(db: Database): Promise<void> {
  await sql`
    update top_up set state = 'expired'
    where id in (
      select id from top_up
      where state = 'opening' and created_at < now() - make_interval(secs => ${SESSION_SECONDS + 2 * YOUNG_SECONDS})
      limit 1000 for update skip locked
    ) and state = 'opening'`.execute(db);
}
