import type { Database } from '../../src/db/database.ts';
import { LEDGER_FLOWS, type Payers } from './flows.ts';

/** A ledger, and who pays in it. */
export interface Paying {
  readonly name: string;
  readonly db: Database;
  readonly payers: Payers;
}

export interface Pace {
  readonly rounds: number;
  readonly seconds: number;
}

/** Paid requests a second of one flow, by the ledger's name: of each round, in the order of rounds. */
export interface Rates {
  readonly flow: string;
  readonly perSecond: Readonly<Record<string, readonly number[]>>;
}

export const CONCURRENCY = 16;
const WARM_UP_SECONDS = 1;

/** What the ledgers do by themselves, flow by flow, in interleaved rounds that each begin with another ledger. */
export async function measureRates(
  ledgers: readonly Paying[],
  { rounds, seconds }: Pace,
  onProgress: (message: string) => void,
): Promise<Rates[]> {
  const results: Rates[] = [];
  for (const flow of ['card', 'prepaid', 'direct'] as const) {
    const perSecond: Record<string, number[]> = Object.fromEntries(ledgers.map(({ name }) => [name, []]));
    for (const ledger of ledgers) await run(ledger, flow, WARM_UP_SECONDS);
    for (let round = 0; round < rounds; round++) {
      for (let turn = 0; turn < ledgers.length; turn++) {
        const ledger = ledgers[(round + turn) % ledgers.length] as Paying;
        const rate = await run(ledger, flow, seconds);
        perSecond[ledger.name]?.push(rate);
        onProgress(`round ${round + 1} of ${rounds}: ${flow}, ${ledger.name}: ${Math.round(rate)} requests/s`);
      }
    }
    results.push({ flow, perSecond });
  }
  return results;
}

async function run({ db, payers }: Paying, flow: keyof typeof LEDGER_FLOWS, seconds: number): Promise<number> {
  const begunAt = performance.now();
  const until = begunAt + seconds * 1000;
  let done = 0;
  const worker = async () => {
    while (performance.now() < until) await LEDGER_FLOWS[flow](db, payers, done++);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return (done * 1000) / (performance.now() - begunAt);
}
