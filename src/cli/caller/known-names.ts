import { findMisspelt } from '../../settings/misspelt.ts';
import { UsageError } from '../usage-error.ts';

const PREFIX = 'SPEECHGATE_';
/** What callers, and the commands of operators, read from the environment. */
const VARIABLES = [
  'SPEECHGATE_CONFIG_DIR',
  'SPEECHGATE_URL',
  'SPEECHGATE_INSECURE',
  'SPEECHGATE_PAY',
  'SPEECHGATE_ACCOUNT',
  'SPEECHGATE_WALLET_KEY',
  'SPEECHGATE_TRUST',
  'SPEECHGATE_MAX_PER_CALL',
  'SPEECHGATE_MAX_PER_DAY',
  'SPEECHGATE_MAX_TOTAL',
  'SPEECHGATE_BRIDGE_TOKEN',
  'SPEECHGATE_OPERATOR',
];

/** Refuses variables that look like settings and are none: a misspelt cap would be no cap. @throws UsageError */
export function assertVariables(env: NodeJS.ProcessEnv): void {
  const names = Object.keys(env);
  const misspelt = findMisspelt(names, new Set(VARIABLES)).map(({ name }) => name);
  assertKnown(
    names.filter((name) => name.toUpperCase().startsWith(PREFIX) || misspelt.includes(name)),
    VARIABLES,
    'the environment',
  );
}

/** @param place where the names stand. @throws UsageError for the first one that is not known */
export function assertKnown(names: readonly string[], known: readonly string[], place: string): void {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const meant = known.find((name) => plain(name) === plain(unknown)) ?? nearest(unknown, known);
  const way = meant === undefined ? `It may be ${known.join(', ')}.` : `Did you mean ${meant}?`;
  throw new UsageError(`${unknown} in ${place} is no setting. ${way}`);
}

function nearest(name: string, known: readonly string[]): string | undefined {
  const [found] = findMisspelt([plain(name)], new Set(known.map(plain)));
  return found && known.find((each) => plain(each) === found.meant);
}

/** Letters and digits alone. */
const plain = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, '');
