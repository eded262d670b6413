import { parseArgs } from 'node:util';
import type { DutyPace } from './duties/measure-duties.ts';
import { type FillSizes, sizesFor } from './growth/fill/sizes.ts';
import type { GrowthPace } from './growth/growth.ts';
import type { LatencyPace } from './latency.ts';
import type { MemoryPace } from './memory.ts';
import type { OverloadPace } from './overload.ts';
import type { WarmUp } from './prepare.ts';
import { rowNames } from './rows.ts';
import type { GatewayTuning } from './targets/start.ts';
import type { Pace } from './throughput.ts';
import { ACCOUNTS } from './world.ts';

const PARTS = ['latency', 'first-byte', 'overload', 'long-job', 'memory', 'growth', 'duties'] as const;
export type Part = (typeof PARTS)[number];

export interface Paces {
  readonly warmUp: WarmUp;
  readonly throughput: Pace;
  readonly latency: LatencyPace;
  readonly overload: OverloadPace;
  readonly memory: MemoryPace;
  readonly growth: GrowthPace;
  readonly duties: DutyPace;
}

/** Settings to compare with the default ones. A run with any of them is not complete. */
export interface Tuning extends GatewayTuning {
  /** By name. Only those that PostgreSQL reads again at a reload. */
  readonly postgres: Readonly<Record<string, string>>;
  /** Connects to PostgreSQL over TCP instead of its Unix socket. */
  readonly isOverTcp: boolean;
}

export interface Options {
  /** Selected rows. Their peers are added. Empty selects all. */
  readonly rows: readonly string[];
  readonly isWithRows: boolean;
  readonly isComplete: boolean;
  readonly parts: ReadonlySet<Part>;
  readonly paces: Paces;
  /** Numbers of gateway processes. Its rows are measured with each. */
  readonly processes: readonly number[];
  readonly writeDocs: boolean;
  /** The Node.js binary of every target, stub and load. Undefined for the current LTS, which is installed. */
  readonly node: string | undefined;
  /** Of the ledger before the run. Undefined creates only the paying accounts. */
  readonly sizes: FillSizes | undefined;
  readonly from: string | undefined;
  readonly tuning: Tuning;
}

const FULL: Paces = {
  warmUp: { requests: 20_000, seconds: 15 },
  throughput: { rounds: 5, warmUpSeconds: 1.5, seconds: 2 },
  latency: { rounds: 3, seconds: 4 },
  overload: { rounds: 3, warmUpSeconds: 2, seconds: 8, idle: 10_000, slow: 500 },
  memory: { requests: 1_000_000, idleSeconds: 60 },
  growth: {
    transfers: [10_000, 100_000, 1_000_000, 10_000_000],
    warmUp: { requests: 5_000, seconds: 15 },
    throughput: { rounds: 5, warmUpSeconds: 0.3, seconds: 1 },
  },
  duties: {
    warmUp: { requests: 20_000, seconds: 10 },
    throughput: { rounds: 10, warmUpSeconds: 0.3, seconds: 1.5 },
  },
};
/** Too short for V8 to finish compiling: it shows that a change works, not how fast it is. */
const QUICK: Paces = {
  warmUp: { requests: 2_000, seconds: 1 },
  throughput: { rounds: 2, warmUpSeconds: 0.3, seconds: 0.5 },
  latency: { rounds: 1, seconds: 0.8 },
  overload: { rounds: 1, warmUpSeconds: 0.5, seconds: 1, idle: 100, slow: 10 },
  memory: { requests: 2_000, idleSeconds: 5 },
  growth: {
    transfers: [10_000, 100_000],
    warmUp: { requests: 1_000, seconds: 1 },
    throughput: { rounds: 1, warmUpSeconds: 0.3, seconds: 0.5 },
  },
  duties: {
    warmUp: { requests: 1_000, seconds: 1 },
    throughput: { rounds: 2, warmUpSeconds: 0.3, seconds: 0.5 },
  },
};
/** Measured only on request: these figures are not ratios to a peer in the same run. */
const NAMED_PARTS: ReadonlySet<Part> = new Set(['overload', 'long-job', 'memory', 'growth', 'duties']);
/** Too slow for a quick run, unless requested by name. */
const SLOW_PARTS: ReadonlySet<Part> = new Set(['first-byte']);

export function readOptions(args: readonly string[]): Options {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      direct: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      processes: { type: 'string', default: '1' },
      'write-docs': { type: 'boolean', default: false },
      node: { type: 'string' },
      accounts: { type: 'string', default: '0' },
      from: { type: 'string' },
      postgres: { type: 'string', multiple: true, default: [] },
      env: { type: 'string', multiple: true, default: [] },
      'node-option': { type: 'string', multiple: true, default: [] },
      tcp: { type: 'boolean', default: false },
    },
  });
  const known = [...rowNames, ...PARTS];
  const unknown = positionals.filter((name) => !known.some((each) => each === name));
  if (unknown.length > 0) throw new Error(`There is no ${unknown.join(', ')}. There are: ${known.join(', ')}.`);
  const isAll = positionals.length === 0;
  const isTuned = values.tcp || [values.postgres, values.env, values['node-option']].some(({ length }) => length > 0);
  const isComplete = isAll && !values.quick && !isTuned && values.accounts === '0';
  if (values['write-docs'] && !isComplete) throw new Error('Only a complete run goes into the docs.');
  const rows = positionals.filter((name) => rowNames.includes(name));
  const pace = values.quick ? QUICK : FULL;
  const paces = { ...pace, overload: { ...pace.overload, isDirect: values.direct } };
  const rounds = values.rounds === undefined ? undefined : count(values.rounds);
  return {
    rows,
    isWithRows: isAll || rows.length > 0,
    isComplete,
    parts: new Set(PARTS.filter((part) => positionals.includes(part) || (isAll && isIncluded(part, values.quick)))),
    paces: rounds === undefined ? paces : withRounds(paces, rounds),
    processes: values.processes.split(',').map(count),
    writeDocs: values['write-docs'],
    node: values.node,
    sizes: sizesIn(values.accounts),
    from: values.from,
    tuning: {
      postgres: pairs(values.postgres),
      env: pairs(values.env),
      nodeOptions: values['node-option'],
      isOverTcp: values.tcp,
    },
  };
}

const withRounds = (paces: Paces, rounds: number): Paces => ({
  ...paces,
  throughput: { ...paces.throughput, rounds },
  overload: { ...paces.overload, rounds },
  growth: { ...paces.growth, throughput: { ...paces.growth.throughput, rounds } },
  duties: { ...paces.duties, throughput: { ...paces.duties.throughput, rounds } },
});

const isIncluded = (part: Part, isQuick: boolean): boolean =>
  !NAMED_PARTS.has(part) && !(isQuick && SLOW_PARTS.has(part));

function sizesIn(accounts: string): FillSizes | undefined {
  if (accounts === '0') return undefined;
  const number = Number(accounts);
  if (Number.isSafeInteger(number) && number >= 2 * ACCOUNTS) return sizesFor(number);
  throw new Error(`--accounts is 0, or at least ${2 * ACCOUNTS}.`);
}

function pairs(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const [, name, value] = /^(\w+)=(.*)$/.exec(text) ?? [];
      if (name === undefined || value === undefined) throw new Error(`${text} is not NAME=VALUE.`);
      return [name, value];
    }),
  );
}

function count(text: string): number {
  if (/^[1-9]\d?$/.test(text)) return Number(text);
  throw new Error(`${text} is no number from 1 to 99.`);
}
