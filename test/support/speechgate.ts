import { type NpmRun, runProgram } from './npm-run.ts';

/** Runs an operators' command with nothing in its environment but what is given. */
export const speechgate = (env: Record<string, string>, ...args: string[]): Promise<NpmRun> =>
  runProgram('src/cli/speechgate.ts', env, ...args);
