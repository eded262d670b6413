import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { CALLER_KINDS } from './callers/crew.ts';
import { TARGETS } from './faults/schedule.ts';

export const USAGE = `npm run lab -- soak [options]
Runs the whole service under callers of all flows while its parts break, and compares what everybody knows.
  --seed S          what is drawn follows from it; drawn itself, and printed, where it is not given
  --minutes M       how long callers work (10)
  --operations N    ends earlier, after so many operations; without --minutes only then
  --callers N       how many there are (40); or of some kinds: 'card=60', '80,card=60,deposit=1'
  --target PART     only this part breaks, such as postgres
  --without-faults  nothing breaks`;

export interface SoakOptions {
  readonly seed: string;
  readonly milliseconds: number;
  readonly operations: number;
  /** Number by kind. '' is the total, and kinds without a number get their share of it. */
  readonly callers: ReadonlyMap<string, number>;
  /** The only part that breaks. */
  readonly target: string | undefined;
  readonly hasFaults: boolean;
}

const MINUTE_MS = 60_000;
const MINUTES = 10;

/** @throws Error with the reason when an argument is invalid */
export function readOptions(args: readonly string[]): SoakOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seed: { type: 'string' },
      minutes: { type: 'string' },
      operations: { type: 'string' },
      callers: { type: 'string' },
      target: { type: 'string' },
      'without-faults': { type: 'boolean', default: false },
    },
  });
  const { operations, target } = values;
  if (target !== undefined && !TARGETS.includes(target))
    throw new Error(`No fault of ${target}: ${TARGETS.join(', ')}.`);
  const callers = amounts(values.callers ?? '');
  for (const kind of callers.keys()) {
    if (kind && !CALLER_KINDS.includes(kind)) throw new Error(`There are no ${kind}: ${CALLER_KINDS.join(', ')}.`);
  }
  const minutes = amount(values.minutes, operations === undefined ? MINUTES : Number.POSITIVE_INFINITY);
  return {
    seed: values.seed ?? randomBytes(4).toString('hex'),
    milliseconds: minutes * MINUTE_MS,
    operations: amount(operations, Number.POSITIVE_INFINITY),
    callers,
    target,
    hasFaults: !values['without-faults'],
  };
}

/** Command-line arguments that reproduce these options. */
export function argumentsOf({ seed, milliseconds, operations, callers, target, hasFaults }: SoakOptions): string {
  const sizes = [...callers].map(([name, number]) => (name ? `${name}=${number}` : number)).join(',');
  return [
    `--seed ${seed}`,
    Number.isFinite(milliseconds) && `--minutes ${Math.ceil((milliseconds / MINUTE_MS) * 100) / 100}`,
    Number.isFinite(operations) && `--operations ${operations}`,
    callers.size > 0 && `--callers '${sizes}'`,
    target !== undefined && `--target '${target}'`,
    !hasFaults && '--without-faults',
  ]
    .filter(Boolean)
    .join(' ');
}

function amounts(text: string): ReadonlyMap<string, number> {
  const pairs = text
    .split(',')
    .filter(Boolean)
    .map((part) => part.split('='));
  return new Map(
    pairs.map(([name = '', number]) => (number === undefined ? ['', amount(name, 0)] : [name, amount(number, 0)])),
  );
}

function amount(text: string | undefined, without: number): number {
  if (text === undefined) return without;
  const number = Number(text);
  if (text === '' || !(number >= 0)) throw new Error(`${text} is no number of 0 or more.`);
  return number;
}
