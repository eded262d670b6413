import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { TARGETS } from './faults/schedule.ts';

export const USAGE = `npm run lab -- soak [options]
Runs the whole service under callers of all flows while its parts break, and compares what everybody knows.
  --seed S          what is drawn follows from it; drawn itself, and printed, where it is not given
  --minutes M       how long callers work (10)
  --callers N       how many there are (40)
  --target PART     only this part breaks, such as postgres
  --without-faults  nothing breaks`;

export interface SoakOptions {
  readonly seed: string;
  readonly minutes: number;
  readonly callers: number;
  /** The only part that breaks. */
  readonly target: string | undefined;
  readonly hasFaults: boolean;
}

/** @throws Error with the reason when an argument is invalid */
export function readOptions(args: readonly string[]): SoakOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seed: { type: 'string', default: randomBytes(4).toString('hex') },
      minutes: { type: 'string', default: '10' },
      callers: { type: 'string', default: '40' },
      target: { type: 'string' },
      'without-faults': { type: 'boolean', default: false },
    },
  });
  const { seed, target } = values;
  if (target !== undefined && !TARGETS.includes(target))
    throw new Error(`No fault of ${target}: ${TARGETS.join(', ')}.`);
  const [minutes, callers] = [amount(values.minutes), amount(values.callers)];
  return { seed, minutes, callers, target, hasFaults: !values['without-faults'] };
}

/** Command-line arguments that reproduce these options. */
export function argumentsOf({ seed, minutes, callers, target, hasFaults }: SoakOptions): string {
  const parts = target === undefined ? '' : ` --target '${target}'`;
  return `--seed ${seed} --minutes ${minutes} --callers ${callers}${parts}${hasFaults ? '' : ' --without-faults'}`;
}

function amount(text: string): number {
  const number = Number(text);
  if (text === '' || !(number >= 0)) throw new Error(`${text} is no number of 0 or more.`);
  return number;
}
