import type { Costs } from './measure.ts';

interface Tolerance {
  /** Of the recorded figure. */
  readonly share?: number;
  readonly amount?: number;
}

/**
 * How far a count may be from the recorded one, a request. Statements and commits have no chance in them. System calls
 * have: the log is written in batches, by size and by the clock, and events that come together are read together; one
 * call more or less in each request is seen all the same. Bytes change with the digits of numbers, and those of
 * PostgreSQL's log with how full its pages are.
 */
const TOLERANCES: Readonly<Record<keyof Costs, Tolerance>> = {
  statements: {},
  commits: {},
  writes: { share: 0.1, amount: 0.5 },
  reads: { share: 0.1, amount: 0.5 },
  bytesToClient: { share: 0.01 },
  bytesToDatabase: { share: 0.01 },
  bytesFromDatabase: { share: 0.01 },
  walBytes: { share: 0.05, amount: 20 },
};

/** Which counts of which flows are not as they were recorded, a line for each. */
export function differences(
  recorded: Readonly<Record<string, Costs>>,
  measured: Readonly<Record<string, Costs>>,
): string[] {
  const flows = new Set([...Object.keys(recorded), ...Object.keys(measured)]);
  return [...flows].flatMap((flow) => {
    const [before, now] = [recorded[flow], measured[flow]];
    if (!before || !now) return [`${flow} is ${before ? 'recorded, and not measured' : 'not recorded'}`];
    return (Object.keys(TOLERANCES) as (keyof Costs)[])
      .filter((name) => !isNear(before[name], now[name], TOLERANCES[name]))
      .map((name) => `${flow}: ${name} of a request were ${before[name]} and are ${now[name]}`);
  });
}

const isNear = (before: number, now: number, { share = 0, amount = 0 }: Tolerance): boolean =>
  Math.abs(now - before) <= Math.max(before * share, amount);
