import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { CALLER_KINDS } from './callers/crew.ts';
import { SABOTAGES, type SabotageName } from './sabotage.ts';

export const USAGE = `npm run soak -- [options]
Runs the whole service under callers of all flows while its parts break, and compares what everybody knows.
  --seed S          what is drawn follows from it; drawn itself, and printed, where it is not given
  --minutes M       how long callers work (10)
  --operations N    ends earlier, after so many operations; without --minutes only then
  --callers N       how many there are (40); or of some kinds: 'card=60', '80,card=60,deposit=1'
  --from K          each caller begins with its operation K; or by kind and name: 'card=5000,card 3=5012'
  --faults-from J   the faults begin with the one of this number
  --without-faults  nothing breaks
  --sabotage NAME   puts a fault into a copy of the service: ${Object.keys(SABOTAGES).join(', ')}
  --again N         runs the seed N times, and tells how often it fails
  --whole           looks for no shorter run that fails`;

export interface SoakOptions {
  readonly seed: string;
  readonly milliseconds: number;
  readonly operations: number;
  /** How many there are, by their kind; '' for all together, among which those that are not named have their share. */
  readonly callers: ReadonlyMap<string, number>;
  /** The number of the first operation, by the name of a caller, or of its kind, or '' for all others. */
  readonly from: ReadonlyMap<string, number>;
  /** The number of the first fault. */
  readonly faultsFrom: number;
  readonly hasFaults: boolean;
  readonly sabotage: SabotageName | undefined;
}

export interface CommandOptions extends SoakOptions {
  readonly again: number;
  readonly isWhole: boolean;
}

const MINUTE_MS = 60_000;
const MINUTES = 10;

/** Of the command line. @throws Error that says what is wrong with it */
export function readOptions(args: readonly string[]): CommandOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seed: { type: 'string' },
      minutes: { type: 'string' },
      operations: { type: 'string' },
      callers: { type: 'string' },
      from: { type: 'string' },
      'faults-from': { type: 'string' },
      'without-faults': { type: 'boolean', default: false },
      sabotage: { type: 'string' },
      again: { type: 'string' },
      whole: { type: 'boolean', default: false },
    },
  });
  const { sabotage, operations } = values;
  if (sabotage !== undefined && !(sabotage in SABOTAGES)) throw new Error(`There is no sabotage ${sabotage}.`);
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
    from: amounts(values.from ?? ''),
    faultsFrom: amount(values['faults-from'], 0),
    hasFaults: !values['without-faults'],
    sabotage: sabotage as SabotageName | undefined,
    again: amount(values.again, 1),
    isWhole: values.whole,
  };
}

/** The arguments that make these options again. */
export function argumentsOf(options: SoakOptions): string {
  const { seed, milliseconds, operations, callers, from, faultsFrom, hasFaults, sabotage } = options;
  return [
    `--seed ${seed}`,
    Number.isFinite(milliseconds) && `--minutes ${Math.ceil((milliseconds / MINUTE_MS) * 100) / 100}`,
    Number.isFinite(operations) && `--operations ${operations}`,
    callers.size > 0 && `--callers '${listOf(callers)}'`,
    from.size > 0 && `--from '${listOf(from)}'`,
    faultsFrom > 0 && `--faults-from ${faultsFrom}`,
    !hasFaults && '--without-faults',
    sabotage && `--sabotage ${sabotage}`,
  ]
    .filter(Boolean)
    .join(' ');
}

/** Where a caller begins: the name of a caller is its kind and a number of it. */
export const firstOf = (from: ReadonlyMap<string, number>, caller: string): number =>
  from.get(caller) ?? from.get(caller.replace(/ \d+$/, '')) ?? from.get('') ?? 0;

const listOf = (amounts: ReadonlyMap<string, number>): string =>
  [...amounts].map(([name, number]) => (name ? `${name}=${number}` : number)).join(',');

/** By name, or '' for a number without one. */
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
