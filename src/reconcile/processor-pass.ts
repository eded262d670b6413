import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import { ProcessorError } from '../top-up/processor-call.ts';
import { abandonPass, advancePass, beginPass, endPass, type Pass, type ProcessorList } from '../top-up/sweep-pass.ts';
import type { Turn } from './reconciler.ts';

/** Pages read in one turn, at most; the next turn goes on from there. */
const MOST_PAGES = 50;

interface Page<Entry> {
  readonly entries: readonly Entry[];
  /** True when older ones follow. */
  readonly hasMore: boolean;
}

export interface PassSteps<Entry extends { readonly id: string }> {
  /** @param createdFrom Unix seconds @param after the last entry of the page before */
  read(createdFrom: number, after: string | undefined): Promise<Page<Entry>>;
  /** False when one of them has to be read again: then the watermark stays, and the next pass begins there anew. */
  handle(entries: readonly Entry[]): Promise<boolean>;
}

/**
 * Goes on with the pass through a list of the processor: from the newest entry back to the watermark, which then moves
 * to where nothing new can be found any more.
 */
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
    // Who takes up a pass that breaks off begins with the first page that has to be read again.
    if (isComplete) pass = await advancePass(db, pass, cursor);
  }
  if (pass && !isComplete) await abandonPass(db, pass);

  /** A cursor that the processor does not know (any more) would fail for ever: the pass begins anew. */
  async function readPage(from: Pass): Promise<Page<Entry>> {
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
