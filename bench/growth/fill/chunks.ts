import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../../src/db/database.ts';
import { unguarded } from '../../../test/support/unguarded.ts';

/** Told what is being filled in, and how much of it is there. */
export type Progress = (what: string, done: number, of: number) => void;

const CHUNK = 100_000;

/**
 * Runs a statement for the numbers from 1 to the count, so many of them at a time, each time in a transaction that may
 * write what has happened long ago.
 */
export async function inChunks(
  db: Database,
  { what, count }: { readonly what: string; readonly count: number },
  statement: (from: number, to: number) => RawBuilder<unknown>,
  progress: Progress,
): Promise<void> {
  for (let from = 1; from <= count; from += CHUNK) {
    const to = Math.min(from + CHUNK - 1, count);
    await unguarded(db, async (trx) => {
      // What a crash takes is filled in again.
      await sql`set local synchronous_commit = off`.execute(trx);
      await statement(from, to).execute(trx);
    });
    progress(what, to, count);
  }
}

export const numbers = (from: number, to: number) => sql`generate_series(${from}::bigint, ${to}::bigint) n`;
