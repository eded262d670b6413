import { findMisspelt } from '../../lib/misspelt.ts';
import { UsageError } from '../../lib/usage-error.ts';

const PREFIX = 'SPEECHGATE_';
const VARIABLES = [
  'SPEECHGATE_CONFIG_DIR',
  'SPEECHGATE_URL',
  'SPEECHGATE_INSECURE',
  'SPEECHGATE_PAY',
  'SPEECHGATE_ACCOUNT',
  'SPEECHGATE_WALLET_KEY',
  'SPEECHGATE_TRUST',
  'SPEECHGATE_RPC_URL',
  'SPEECHGATE_MAX_PER_CALL',
  'SPEECHGATE_MAX_PER_DAY',
  'SPEECHGATE_MAX_TOTAL',
  'SPEECHGATE_BRIDGE_TOKEN',
  'SPEECHGATE_OPERATOR',
];

/** Refuses misspelt variables, because a misspelt cap would be ignored. @throws UsageError */
export function assertVariables(env: NodeJS.ProcessEnv): void {
  const names = Object.keys(env);
  const misspelt = findMisspelt(names, new Set(VARIABLES)).map(({ name }) => name);
  assertKnown(
    names.filter((name) => name.toUpperCase().startsWith(PREFIX) || misspelt.includes(name)),
    VARIABLES,
    'the environment',
  );
}

export function assertKnown(names: readonly string[], known: readonly string[], source: string): void {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const suggestion = known.find((name) => plain(name) === plain(unknown)) ?? nearest(unknown, known);
  const hint = suggestion === undefined ? `Use one of ${known.join(', ')}.` : `Did you mean ${suggestion}?`;
  throw new UsageError(`${unknown} in ${source} is not a setting. ${hint}`);
}

function nearest(name: string, known: readonly string[]): string | undefined {
  const [found] = findMisspelt([plain(name)], new Set(known.map(plain)));
  return found && known.find((each) => plain(each) === found.meant);
}

const plain = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, '');
