import { spawnSync } from 'node:child_process';

/** Why a program that a test wants can't be used, or undefined if it can. */
export function missingProgram(program: string, argument = '-version'): string | undefined {
  return spawnSync(program, [argument]).error === undefined ? undefined : `${program} is not installed`;
}
