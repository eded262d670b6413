import { type Config, describeFaults, readConfig } from '../../config/config.ts';
import { UsageError } from '../../lib/usage-error.ts';

/** @param what the command's verb, for the error @throws UsageError if a setting is invalid */
export function readWholeConfig(settings: NodeJS.ProcessEnv, what: string): Config {
  const read = readConfig(settings);
  if (read.outcome === 'read') return read.config;
  throw new UsageError(`speechgate can't ${what}:\n${describeFaults(read.faults)}`);
}
