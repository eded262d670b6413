import { type Prepared, prepareRows } from '../prepare.ts';
import { type Row, selectRows } from '../rows.ts';
import type { Setup } from '../setup.ts';
import { measureThroughput } from '../throughput.ts';
import type { Pace, Rates } from './rates.ts';

const WARM_UP_SECONDS = 0.4;
/** Once for each ledger, before the first round. */
const WARM_UP = { requests: 2_000, seconds: 3 };

/** Rows of the benchmark that are measured again in a ledger that has grown. */
const ROWS: readonly Row[] = selectRows(['challenge', 'card', 'prepaid', 'direct'], [1]).filter(
  ({ target }) => target === 'ours',
);

/** Requests over HTTP, in interleaved rounds that each begin with another ledger. */
export async function measureRequests(
  setups: Readonly<Record<string, Setup>>,
  { rounds, seconds }: Pace,
  onProgress: (message: string) => void,
): Promise<Rates[]> {
  const names = Object.keys(setups);
  const results = ROWS.map(({ label }): { flow: string; perSecond: Record<string, number[]> } => ({
    flow: label,
    perSecond: Object.fromEntries(names.map((name) => [name, []])),
  }));
  const prepared: Record<string, readonly Prepared[]> = {};
  for (const name of names) {
    const ofSetup = await prepareRows(setups[name] as Setup, ROWS, WARM_UP, onProgress);
    prepared[name] = ROWS.map((row) => ofSetup.get(row.name) as Prepared);
  }
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < names.length; turn++) {
      const name = names[(round + turn) % names.length] as string;
      onProgress(`round ${round + 1} of ${rounds} over HTTP: ${name}`);
      const pace = { rounds: 1, seconds, warmUpSeconds: WARM_UP_SECONDS };
      const measured = await measureThroughput(
        setups[name] as Setup,
        prepared[name] as readonly Prepared[],
        pace,
        () => {},
      );
      for (const [index, row] of ROWS.entries()) {
        results[index]?.perSecond[name]?.push(measured[row.name]?.[0]?.requestsPerSecond ?? 0);
      }
    }
  }
  return results;
}
