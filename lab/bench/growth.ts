import { type Cells, progress } from '../figures.ts';
import { sizesFor } from './fill-ledger.ts';
import { namedRows } from './rows.ts';
import { type Setup, setUp } from './setup.ts';
import { verdict, whole, wholeSpread } from './statistics.ts';
import type { Tuning } from './targets.ts';
import { measureThroughput, type Pace, prepareRows, type Rounds, spreadOf, type WarmUp } from './throughput.ts';
import { ACCOUNTS } from './world.ts';

export interface GrowthPace extends Pace {
  /** Sizes of the ledgers, ascending. */
  readonly transfers: readonly number[];
  /** Short, since its requests grow the ledger. */
  readonly warmUp: WarmUp;
}

interface Line {
  /** Transfers before the warm-up, and after the last round. */
  readonly before: number;
  readonly after: number;
  readonly rounds: Rounds;
  readonly auditSeconds: number;
}

const ROWS = namedRows('card', 'prepaid', 'direct');
/** Limit of a request's CPU time, relative to the smallest ledger. */
const GROWTH = 1.15;

/** Measures the gateway in a ledger of each size, then in the smallest again, which shows how the machine has changed. */
export async function measureGrowth(tuning: Tuning, pace: GrowthPace): Promise<Cells> {
  const lines: Line[] = [];
  for (const count of [...pace.transfers, pace.transfers[0] as number]) {
    progress(`a ledger of ${count.toLocaleString('en')} transfers`);
    const setup = await setUp(ROWS, tuning, sizesFor(Math.max(2 * ACCOUNTS, count / 10), count));
    try {
      const before = await transfersIn(setup);
      const rounds = await measureThroughput(setup, await prepareRows(setup, ROWS, pace.warmUp), pace);
      const after = await transfersIn(setup);
      const startedAt = performance.now();
      await setup.books.audit();
      lines.push({ before, after, rounds, auditSeconds: (performance.now() - startedAt) / 1000 });
    } finally {
      await setup.close();
    }
  }
  const cells = ROWS.flatMap(({ name, label }) => {
    const cpuOf = ({ rounds }: Line) =>
      spreadOf(rounds.get(name), ({ cpuMs }) => cpuMs).median +
      spreadOf(rounds.get(name), ({ postgresCpuMs }) => postgresCpuMs).median;
    return lines.map((line, at) => {
      const ratio = cpuOf(line) / cpuOf(lines[0] as Line);
      const rate = spreadOf(line.rounds.get(name), ({ requestsPerSecond }) => requestsPerSecond);
      const isAsked = at > 0 && at < lines.length - 1;
      return [
        ...[label, whole(line.before), whole(line.after), wholeSpread(rate), cpuOf(line).toFixed(3)],
        ...[`${ratio.toFixed(2)}x`, isAsked ? verdict(ratio <= GROWTH) : '', line.auditSeconds.toFixed(1)],
      ];
    });
  });
  const asked = `asked ${GROWTH}x at most`;
  const header = ['work', 'transfers before', 'after', 'requests/s (min–max)', 'CPU and PostgreSQL ms'];
  return [[...header, 'of the smallest', asked, 'audit s'], ...cells];
}

async function transfersIn({ books: { db } }: Setup): Promise<number> {
  const count = db.selectFrom('transfer').select(({ fn }) => fn.countAll().as('count'));
  return Number((await count.executeTakeFirstOrThrow()).count);
}
