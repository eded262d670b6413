import { parseArgs } from 'node:util';
import { TARGETS, type TargetName } from './lanes.ts';

export interface Options {
  readonly tries: number;
  readonly targets: readonly TargetName[];
  /** Whether an attack is among those that were asked for. */
  only(name: string): boolean;
  /** Whether the table goes into the page about threats. */
  readonly isWritten: boolean;
  /** Whether the first wrong try of each attack is told in full. */
  readonly isExplained: boolean;
  /** Where outcomes are kept, so that a further run goes on with those that are missing. */
  readonly kept: string | undefined;
  /** As it was given, after `npm run attacks`. */
  readonly command: string;
}

const TRIES = '100';

/** Throws with what is wrong. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      tries: { type: 'string', default: TRIES },
      /** Names of attacks, or the beginnings of names, with commas between them. */
      only: { type: 'string' },
      against: { type: 'string', default: TARGETS.join(',') },
      write: { type: 'boolean', default: false },
      keep: { type: 'string' },
      explain: { type: 'boolean', default: false },
    },
  });
  if (!/^[1-9]\d{0,4}$/.test(values.tries)) throw new Error(`${values.tries} is no number of tries.`);
  const targets = values.against.split(',').map((name) => {
    const known = TARGETS.find((target) => target === name);
    if (!known) throw new Error(`There is no ${name}. There are: ${TARGETS.join(', ')}.`);
    return known;
  });
  if (values.write && (values.only !== undefined || targets.length < TARGETS.length)) {
    throw new Error('Only a run of all attacks against all targets goes into the docs.');
  }
  const wanted = values.only?.split(',');
  return {
    ...{ tries: Number(values.tries), targets, isWritten: values.write, isExplained: values.explain },
    kept: values.keep,
    only: (name) => wanted?.some((beginning) => name.startsWith(beginning)) ?? true,
    command: ['npm run attacks', ...(args.length > 0 ? ['--', ...args] : [])].join(' '),
  };
}
