import { type ParseArgsConfig, parseArgs } from 'node:util';

/** What was said wrongly is for the operator to mend before a command runs again. */
export const EXIT_USAGE = 78;

/** Reads a command's arguments; what it does not take ends the process with how it is used. */
export function readArguments<const T extends ParseArgsConfig>(config: T, usage: string) {
  try {
    return parseArgs(config);
  } catch (error) {
    return endWith(`${(error as Error).message.split('. ')[0]}.\n${usage}`);
  }
}

/** Ends the process, since what was said can't be done. */
export function endWith(message: string): never {
  console.error(message);
  process.exit(EXIT_USAGE);
}
