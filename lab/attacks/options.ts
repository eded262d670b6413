import { parseArgs } from 'node:util';
import { TARGETS, type TargetName } from './lanes.ts';

export interface Options {
  readonly tries: number;
  readonly targets: readonly TargetName[];
  only(name: string): boolean;
  readonly isWritten: boolean;
  readonly command: string;
}

const TRIES = '100';

export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      tries: { type: 'string', default: TRIES },
      /** Names of attacks or prefixes of names, separated by commas. */
      only: { type: 'string' },
      against: { type: 'string', default: TARGETS.join(',') },
      write: { type: 'boolean', default: false },
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
    ...{ tries: Number(values.tries), targets, isWritten: values.write },
    only: (name) => wanted?.some((beginning) => name.startsWith(beginning)) ?? true,
    command: ['npm run lab -- attacks', ...args].join(' '),
  };
}
