import { type ParseArgsConfig, parseArgs } from 'node:util';
import { UsageError } from './usage-error.ts';

/** What was said wrongly is for the operator to mend before a command runs again. */
export const EXIT_USAGE = 78;

/**
 * What a command line says.
 * @throws UsageError for what the command does not take
 */
export function parseCommandLine<const T extends ParseArgsConfig>(config: T) {
  try {
    return parseArgs(config);
  } catch (error) {
    const [fault = ''] = (error as Error).message.split(/\. |\n/);
    throw new UsageError(`${fault.replace(/\.$/, '')}.`);
  }
}

/** Reads an operators' command's arguments; what it does not take ends the process with how it is used, and so does --help. */
export function readArguments<const T extends ParseArgsConfig>(config: T, usage: string) {
  if ((config.args ?? process.argv.slice(2)).includes('--help')) {
    console.log(usage);
    process.exit();
  }
  try {
    return parseCommandLine(config);
  } catch (error) {
    return endWith(`${(error as Error).message}\n${usage}`);
  }
}

/** Ends the process, since what was said can't be done. */
export function endWith(message: string): never {
  console.error(message);
  process.exit(EXIT_USAGE);
}
