import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** The processor's lists, and how long what is new in them can still change or appear, with some more for clocks. */
const OVERLAP_SECONDS = {
  // A session may be paid up to 24 hours after it was created.
  sessions: 25 * 3600,
  // These appear at once, and what changes later is looked for one by one.
  refunds: 3600,
  disputes: 3600,
} as const;

export type ProcessorList = keyof typeof OVERLAP_SECONDS;

/** How far a pass has come. It is written only by who has seen what is there: a process that was frozen leaves it. */
export interface Pass {
  readonly name: ProcessorList;
  /** Unix seconds. */
  readonly created_from: number;
  /** With its microseconds. */
  readonly begun_at: string;
  readonly pass_cursor: string | null;
}

const isAt = ({ name, begun_at, pass_cursor }: Pass) => sql<boolean>`(name = ${name}
  and pass_started_at = ${begun_at}::timestamptz and pass_cursor is not distinct from ${pass_cursor})`;

/** Begins a pass, or takes up the one under way. Neither lies ahead, also when the database's clock has stepped back. */
export async function beginPass(db: Database, list: ProcessorList): Promise<Pass> {
  const { rows } = await sql<Pass>`
    update processor_list
    set pass_started_at = least(coalesce(pass_started_at, now()), now()),
        read_until = least(read_until, now() - make_interval(secs => ${OVERLAP_SECONDS[list]}))
    where name = ${list}
    returning name, floor(extract(epoch from read_until))::double precision as created_from,
              pass_started_at::text as begun_at, pass_cursor`.execute(db);
  return rows[0] as Pass;
}

/** Records that a page has been read; undefined when somebody else has gone on with the pass. */
export async function advancePass(db: Database, pass: Pass, cursor: string | undefined): Promise<Pass | undefined> {
  const pass_cursor = cursor ?? null;
  const { numAffectedRows } = await sql`
    update processor_list set pass_cursor = ${pass_cursor} where ${isAt(pass)}`.execute(db);
  return numAffectedRows === 1n ? { ...pass, pass_cursor } : undefined;
}

/** Forgets the pass, so that the next one begins anew. */
export async function abandonPass(db: Database, pass: Pass): Promise<void> {
  await sql`update processor_list set pass_started_at = null, pass_cursor = null where ${isAt(pass)}`.execute(db);
}

/** Moves the watermark to where nothing new can be found any more. */
export async function endPass(db: Database, pass: Pass): Promise<void> {
  await sql`
    update processor_list
    set read_until = greatest(read_until, pass_started_at - make_interval(secs => ${OVERLAP_SECONDS[pass.name]})),
        pass_started_at = null, pass_cursor = null
    where ${isAt(pass)}`.execute(db);
}

/**
 * Has every list read again from before that moment on, and every open purchase, refund and dispute asked for next: what
 * was known of them is as old as a backup. Passes that are under way begin anew.
 */
export async function readAgainSince(db: Database, since: Date): Promise<void> {
  for (const [name, seconds] of Object.entries(OVERLAP_SECONDS)) {
    await sql`
      update processor_list
      set read_until = least(read_until, ${since}::timestamptz - make_interval(secs => ${seconds})),
          pass_started_at = null, pass_cursor = null
      where name = ${name}`.execute(db);
  }
  await sql`update top_up set next_check_at = now() where state = 'open' and next_check_at > now()`.execute(db);
  await sql`update clawback set next_check_at = now() where next_check_at > now()`.execute(db);
}

/** How many passes are under way, and how much that was due at that moment is still to be asked for. */
export async function unread(db: Database, dueAt: string): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count from (
      select from processor_list where pass_started_at is not null
      union all select from top_up where state = 'open' and next_check_at < ${dueAt}::timestamptz
      union all select from clawback where next_check_at < ${dueAt}::timestamptz
    ) left_to_read`.execute(db);
  return rows[0]?.count ?? 0;
}
