import { type CommandRun, speechgate } from './speechgate.ts';

/** Runs the command that a script of package.json names, without npm. */
export const npmRun = (script: string, env: Record<string, string>, ...args: string[]): Promise<CommandRun> =>
  speechgate(env, script, ...args);
