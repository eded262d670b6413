import { eachOf } from '../lib/each-of.ts';
import { testPoint } from '../lib/test-point.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

const BATCH = 200;
/** Objects that are deleted at a time: a bucket takes long for each. */
const CONCURRENCY = 8;

/** Objects of the audio store whose time is over, each with the row that names it. */
export interface ExpiredObjects<Row> {
  /** At most so many. */
  find(limit: number): Promise<readonly Row[]>;
  /** Deletes the object of a row. */
  deleteObject(row: Row): Promise<void>;
  /** Takes note of rows whose objects are gone. */
  forget(rows: readonly Row[]): Promise<void>;
}

/** Deletes objects, and takes note of each that is gone, also when others could not be deleted. Counts rows. */
export function expiredObjects<Row>(name: string, { find, deleteObject, forget }: ExpiredObjects<Row>): Reconciler {
  return {
    name,
    async run({ signal, done }) {
      const failures = new Failures();
      for (let isMore = true; isMore && !signal.aborted; ) {
        const rows = await find(BATCH);
        const deleted: Row[] = [];
        try {
          await eachOf(rows, CONCURRENCY, async (row) => {
            if (signal.aborted) return;
            try {
              await deleteObject(row);
              testPoint('stored object deleted');
              deleted.push(row);
            } catch (error) {
              failures.add(error);
            }
          });
        } finally {
          await forget(deleted);
          done(deleted.length);
        }
        failures.check();
        isMore = rows.length === BATCH;
      }
    },
  };
}
