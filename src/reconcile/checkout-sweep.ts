import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { type Processor, ProcessorError } from '../top-up/processor.ts';
import type { Purchases } from '../top-up/purchase.ts';
import { creditListed } from './credit-listed.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

/** Once in five minutes at the default interval. */
const EVERY_TURNS = 20;
/** Pages read in one turn, at most; the next turn goes on from there. */
const MOST_PAGES = 50;
/** A session may be paid up to 24 hours after it was created; the rest is for clocks that differ. */
const OVERLAP_SECONDS = 25 * 3600;

/** How far a pass has come. It is written only by who has seen what is there: a process that was frozen leaves it. */
interface Pass {
  /** Unix seconds. */
  readonly created_from: number;
  /** With its microseconds. */
  readonly begun_at: string;
  readonly pass_cursor: string | null;
}

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
        pass = hasMore ? await advance(db, pass, sessions.at(-1)?.id) : undefined;
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
        await sql`update checkout_sweep set pass_started_at = null, pass_cursor = null where ${isAt(pass)}`.execute(db);
      }
      throw error;
    }
  }
}

const isAt = ({ begun_at, pass_cursor }: Pass) => sql<boolean>`(
  pass_started_at = ${begun_at}::timestamptz and pass_cursor is not distinct from ${pass_cursor})`;

/** Begins a pass, or takes up the one under way. */
async function beginPass(db: Database): Promise<Pass> {
  const { rows } = await sql<Pass>`
    update checkout_sweep set pass_started_at = coalesce(pass_started_at, now())
    returning floor(extract(epoch from read_until))::double precision as created_from,
              pass_started_at::text as begun_at, pass_cursor`.execute(db);
  return rows[0] as Pass;
}

/** Records that a page has been read; undefined when somebody else has gone on with the pass. */
async function advance(db: Database, pass: Pass, cursor: string | undefined): Promise<Pass | undefined> {
  const pass_cursor = cursor ?? null;
  const { numAffectedRows } = await sql`
    update checkout_sweep set pass_cursor = ${pass_cursor} where ${isAt(pass)}`.execute(db);
  return numAffectedRows === 1n ? { ...pass, pass_cursor } : undefined;
}

async function endPass(db: Database, pass: Pass): Promise<void> {
  await sql`
    update checkout_sweep
    set read_until = greatest(read_until, pass_started_at - make_interval(secs => ${OVERLAP_SECONDS})),
        pass_started_at = null, pass_cursor = null
    where ${isAt(pass)}`.execute(db);
}
