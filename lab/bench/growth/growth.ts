import type { Database } from '../../../src/db/database.ts';
import { type Prepared, prepareRows, type WarmUp } from '../prepare.ts';
import { type Line, linesOf } from '../report/comparison.ts';
import type { Row } from '../rows.ts';
import { type SetupOptions, setUp } from '../setup.ts';
import { measureThroughput, type Pace } from '../throughput.ts';
import { ACCOUNTS } from '../world.ts';
import { sizesFor } from './fill/sizes.ts';

export interface GrowthPace {
  /** Sizes of the ledgers, ascending. */
  readonly transfers: readonly number[];
  /** Short, since its requests grow the ledger. */
  readonly warmUp: WarmUp;
  readonly throughput: Pace;
}

export interface GrowthLine {
  /** Transfers before the warm-up, and after the last round. */
  readonly before: number;
  readonly after: number;
  readonly rows: readonly Line[];
  readonly auditSeconds: number;
}

/** Measures the gateway's rows in a ledger of each size, then in the smallest again, which shows how the machine has changed. */
export async function measureGrowth(
  rows: readonly Row[],
  options: SetupOptions,
  { transfers, warmUp, throughput }: GrowthPace,
  onProgress: (message: string) => void,
): Promise<GrowthLine[]> {
  const lines: GrowthLine[] = [];
  for (const count of [...transfers, transfers[0] as number]) {
    onProgress(`a ledger of ${count.toLocaleString('en')} transfers`);
    const sizes = sizesFor(Math.max(2 * ACCOUNTS, count / 10), count);
    const setup = await setUp([{ name: 'ours', processes: 1 }], { ...options, sizes }, onProgress);
    try {
      const { db } = setup.books;
      const before = await transfersIn(db);
      const prepared = await prepareRows(setup, rows, warmUp, onProgress);
      const of = rows.map(({ name }) => prepared.get(name) as Prepared);
      const rounds = await measureThroughput(setup, of, throughput, onProgress);
      const after = await transfersIn(db);
      onProgress('auditing the books');
      const startedAt = performance.now();
      await setup.books.audit();
      const auditSeconds = (performance.now() - startedAt) / 1000;
      lines.push({ before, after, rows: linesOf(rows, rounds), auditSeconds });
    } finally {
      await setup.close();
    }
  }
  return lines;
}

async function transfersIn(db: Database): Promise<number> {
  const { count } = await db
    .selectFrom('transfer')
    .select(({ fn }) => fn.countAll().as('count'))
    .executeTakeFirstOrThrow();
  return Number(count);
}
