import { type Config, describeFaults, readConfig } from '../settings/config.ts';
import { EXIT_USAGE } from './arguments.ts';

/** All settings, or the end of the process with their faults. @param what it is that they are needed for, as a verb */
export function readWholeConfig(settings: NodeJS.ProcessEnv, what: string): Config {
  const read = readConfig(settings);
  if (read.outcome === 'read') return read.config;
  console.error(`speechgate can't ${what}:\n${describeFaults(read.faults)}`);
  process.exit(EXIT_USAGE);
}
