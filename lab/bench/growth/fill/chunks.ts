import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../../../src/db/database.ts';
import { unguarded } from '../../../../test/support/unguarded.ts';

/** Called after each chunk. */
export type Progress = (what: string, done: number, of: number) => void;

const CHUNK = 100_000;

/** Runs a statement for the numbers 1 to `count` in chunks. Each chunk is a transaction that may write past dates. */
export async function inChunks(
  db: Database,
  { what, count }: { readonly what: string; readonly count: number },
  statement: (from: number, to: number) => RawBuilder<unknown>,
  progress: Progress,
): Promise<void> {
  for (let from = 1; from <= count; from += CHUNK) {
    const to = Math.min(from + CHUNK - 1, count);
    await unguarded(db, async (trx) => {
      // After a crash the fill starts again, so a commit need not wait for the disk.
      await sql`set local synchronous_commit = off`.execute(trx);
      await statement(from, to).execute(trx);
    });
    progress(what, to, count);
  }
}

export const numbers = (from: number, to: number) => sql`generate_series(${from}::bigint, ${to}::bigint) n`;
