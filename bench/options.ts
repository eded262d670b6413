import { parseArgs } from 'node:util';
import type { LatencyPace } from './latency.ts';
import type { LedgerPace } from './ledger/measure.ts';
import type { OverloadPace } from './overload.ts';
import type { WarmUp } from './prepare.ts';
import { rowNames } from './rows.ts';
import type { Pace } from './throughput.ts';

/** What is measured beside the rows. */
const PARTS = ['latency', 'first-byte', 'ledger', 'memory', 'overload'] as const;
export type Part = (typeof PARTS)[number];

export interface Paces {
  readonly warmUp: WarmUp;
  readonly throughput: Pace;
  readonly latency: LatencyPace;
  readonly ledger: LedgerPace;
  readonly overload: OverloadPace;
}

export interface Options {
  /** Rows of the table that are measured, and those that they are held against; none is all of them. */
  readonly rows: readonly string[];
  readonly isWithRows: boolean;
  /** Everything, and not the quick way. */
  readonly isComplete: boolean;
  readonly parts: ReadonlySet<Part>;
  readonly paces: Paces;
  /** Of the gateway: its rows are measured with each number of them. */
  readonly processes: readonly number[];
  /** Whether the figures go into the page about speed. */
  readonly writeDocs: boolean;
  /** A file of an earlier run, whose results are shown instead of measuring. */
  readonly from: string | undefined;
}

const FULL: Paces = {
  warmUp: { requests: 20_000, seconds: 15 },
  throughput: { rounds: 5, warmUpSeconds: 1.5, seconds: 2 },
  latency: { rounds: 3, seconds: 4 },
  ledger: { rounds: 3, seconds: 3, accounts: [1, 10, 50] },
  overload: { rounds: 3, warmUpSeconds: 2, seconds: 8, idle: 10_000, slow: 500 },
};
/** V8 is not done with its compiling then: for what has changed, not for what it comes to. */
const QUICK: Paces = {
  warmUp: { requests: 2_000, seconds: 1 },
  throughput: { rounds: 2, warmUpSeconds: 0.3, seconds: 0.5 },
  latency: { rounds: 1, seconds: 0.8 },
  ledger: { rounds: 1, seconds: 1, accounts: [1, 50] },
  overload: { rounds: 1, warmUpSeconds: 0.5, seconds: 1, idle: 100, slow: 10 },
};
/** What is measured only when it is named: what it tells is no ratio to what ran beside it. */
const NAMED_PARTS: ReadonlySet<Part> = new Set(['overload']);
/** What the quick way has no time for, unless it is named. */
const SLOW_PARTS: ReadonlySet<Part> = new Set(['first-byte', 'memory']);

/** Throws with what is wrong. */
export function readOptions(args: readonly string[]): Options {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      processes: { type: 'string', default: '1' },
      'write-docs': { type: 'boolean', default: false },
      from: { type: 'string' },
    },
  });
  const known = [...rowNames, ...PARTS];
  const unknown = positionals.filter((name) => !known.some((each) => each === name));
  if (unknown.length > 0) throw new Error(`There is no ${unknown.join(', ')}. There are: ${known.join(', ')}.`);
  const isAll = positionals.length === 0;
  const isComplete = isAll && !values.quick;
  if (values['write-docs'] && !isComplete) throw new Error('Only a complete run goes into the docs.');
  const rows = positionals.filter((name) => rowNames.includes(name));
  const paces = values.quick ? QUICK : FULL;
  const rounds = values.rounds === undefined ? undefined : count(values.rounds);
  return {
    rows,
    isWithRows: isAll || rows.length > 0,
    isComplete,
    parts: new Set(PARTS.filter((part) => positionals.includes(part) || (isAll && isIncluded(part, values.quick)))),
    paces: rounds === undefined ? paces : withRounds(paces, rounds),
    processes: values.processes.split(',').map(count),
    writeDocs: values['write-docs'],
    from: values.from,
  };
}

const withRounds = (paces: Paces, rounds: number): Paces => ({
  ...paces,
  throughput: { ...paces.throughput, rounds },
  overload: { ...paces.overload, rounds },
});

const isIncluded = (part: Part, isQuick: boolean): boolean =>
  !NAMED_PARTS.has(part) && !(isQuick && SLOW_PARTS.has(part));

function count(text: string): number {
  if (/^[1-9]\d?$/.test(text)) return Number(text);
  throw new Error(`${text} is no number from 1 to 99.`);
}
