import { parseArgs } from 'node:util';
import { rowNames } from './rows.ts';
import type { Pace } from './throughput.ts';

export interface Options {
  /** Rows of the table; none is all of them. */
  readonly rows: readonly string[];
  readonly pace: Pace;
  /** Of the gateway: it is measured with each number of them. */
  readonly processes: readonly number[];
}

const FULL: Pace = { rounds: 6, warmUpSeconds: 0.4, seconds: 2 };
const QUICK: Pace = { rounds: 2, warmUpSeconds: 0.2, seconds: 0.8 };

/** Throws with what is wrong. */
export function readOptions(args: readonly string[]): Options {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      processes: { type: 'string', default: '1' },
    },
  });
  const unknown = positionals.filter((name) => !rowNames.includes(name));
  if (unknown.length > 0) throw new Error(`There is no ${unknown.join(', ')}. There are: ${rowNames.join(', ')}.`);
  const pace = values.quick ? QUICK : FULL;
  return {
    rows: positionals,
    pace: { ...pace, rounds: values.rounds === undefined ? pace.rounds : count(values.rounds) },
    processes: values.processes.split(',').map(count),
  };
}

function count(text: string): number {
  if (/^[1-9]\d?$/.test(text)) return Number(text);
  throw new Error(`${text} is no number from 1 to 99.`);
}
