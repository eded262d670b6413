import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import { ProcessorError } from '../payments/top-up/processor-call.ts';
import {
  abandonPass,
  advancePass,
  beginPass,
  endPass,
  type Pass,
  type ProcessorList,
} from '../payments/top-up/sweep-pass.ts';
import type { Turn } from './reconciler.ts';

/** Pages read per turn; the next turn continues there. */
const MOST_PAGES = 50;

interface PassSteps<Entry> {
  read(createdFrom: number, after: string | undefined): Promise<{ entries: readonly Entry[]; hasMore: boolean }>;
  /** Returns false if an entry must be read again: the watermark then stays, and the next pass starts there. */
  handle(entries: readonly Entry[]): Promise<boolean>;
}

/** Continues the pass from the newest entry back to the watermark, which moves when the pass is complete. */
export async function runPass<Entry extends { readonly id: string }>(
  db: Database,
  list: ProcessorList,
  { read, handle }: PassSteps<Entry>,
  { signal }: Turn,
): Promise<void> {
  let isComplete = true;
  let pass: Pass | undefined = await beginPass(db, list);
  let cursor = pass.pass_cursor ?? undefined;
  for (let pages = 0; pass && pages < MOST_PAGES && !signal.aborted; pages++) {
    testPoint('page unread');
    const { entries, hasMore } = await readPage(pass);
    if (!(await handle(entries))) isComplete = false;
    testPoint('page handled');
    cursor = entries.at(-1)?.id;
    if (!hasMore) return isComplete ? endPass(db, pass) : abandonPass(db, pass);
    // If the pass is interrupted, its successor starts at the first page that must be read again.
    if (isComplete) pass = await advancePass(db, pass, cursor);
  }
  if (pass && !isComplete) await abandonPass(db, pass);

  /** A cursor that the processor does not know would fail for ever, so the pass starts over. */
  async function readPage(from: Pass) {
    try {
      return await read(from.created_from, cursor);
    } catch (error) {
      if (cursor && error instanceof ProcessorError && (error.status === 400 || error.status === 404)) {
        await abandonPass(db, from);
      }
      throw error;
    }
  }
}
