import { setTimeout as sleep } from 'node:timers/promises';
import { connectionFix, faultOf, isConnectionError, poolerFix, rightsFix } from '../../db/database-errors.ts';
import { pendingMigrations } from '../../db/migrate.ts';
import { chainChecks } from './chain-checks.ts';
import {
  type Check,
  type DoctorContext,
  type DoctorOptions,
  type Finding,
  fault,
  reachDatabase,
  skipped,
} from './check.ts';
import { DATABASE_CHECKS } from './database-checks.ts';
import { cardChecks, facilitatorChecks, mailChecks, speechChecks } from './provider-checks.ts';
import { PUBLIC_CHECKS } from './public-checks.ts';
import { SETTINGS_CHECKS, SIGNING_KEY_CHECKS } from './settings-checks.ts';
import { storageChecks } from './storage-checks.ts';

const DEFAULT_LIMIT_MS = 20_000;

export const allChecks = (options: DoctorOptions): readonly Check[] => [
  ...SETTINGS_CHECKS,
  ...DATABASE_CHECKS,
  ...speechChecks(options),
  ...cardChecks(options),
  ...facilitatorChecks(options),
  ...chainChecks(options),
  ...SIGNING_KEY_CHECKS,
  ...mailChecks(options),
  ...storageChecks(options),
  ...PUBLIC_CHECKS,
];

export interface Checked extends Finding {
  readonly name: string;
  readonly about?: string;
}

/** What is not known if the check of this name is skipped, unless the reason says it. */
const SUBJECTS: Readonly<Record<string, string>> = {
  replicas: 'whether all machines share one audio store',
  'database-version': 'whether this version of PostgreSQL is supported',
  durability: 'whether booked money survives a power failure',
  session: 'whether settings of the database or its role disturb the service',
  pooler: 'whether a pooler keeps what connections need',
  commits: 'whether a committed change is kept',
  standby: 'whether booked money survives a failover',
  clock: 'whether the clock of the database is right',
  connections: 'whether the database allows enough connections',
  schema: 'whether the tables fit this release',
  constraints: 'whether all rows satisfy all constraints',
  rights: 'whether the database role has the right permissions',
  money: 'whether the balances are in the token of X402_NETWORK and X402_ASSET',
  upstream: 'whether the speech server can speak with this model',
  'card-mode': 'whether the key and the database are both for test or both for live payments',
  'card-permissions': 'whether the key has all permissions at the card processor',
  'card-webhook': 'whether the card processor sends its events to this service',
  'node-logs': 'whether the node can find payments of the last day',
  asset: 'whether X402_ASSET is the right token',
  payee: 'whether the payee can receive USDC',
  identity: 'whether BASE_URL leads to this service',
  proxies: 'whether TRUST_PROXY fits the proxy',
  'forged-addresses': 'whether callers can forge their address to avoid rate limits',
};

/**
 * Runs all checks at once and yields their results in order. No check throws or exceeds its limit.
 * @param left names of checks to skip
 */
export async function* runChecks(
  checks: readonly Check[],
  context: DoctorContext,
  left: ReadonlySet<string>,
): AsyncGenerator<Checked> {
  const running = checks.map(async ({ name, about, limitMs = DEFAULT_LIMIT_MS, needs, run }): Promise<Checked> => {
    const finding = left.has(name)
      ? skipped('--skip leaves this check out.')
      : await judged(async () => (await whatLacks(context, needs)) ?? run(context), limitMs, needs);
    const named = { name, ...(about !== undefined && { about }) };
    if (finding.state !== 'skipped') return { ...named, ...finding };
    const what = SUBJECTS[name] === undefined ? '' : `: ${SUBJECTS[name]}`;
    return { ...named, ...finding, message: `Not checked${what}. ${finding.message}` };
  });
  for (const checked of running) yield await checked;
}

async function whatLacks(context: DoctorContext, needs: Check['needs']): Promise<Finding | undefined> {
  if (needs === undefined) return undefined;
  const isReached = await reachDatabase(context).then(
    () => true,
    () => false,
  );
  if (!isReached)
    return skipped('The database is unavailable: fix what the check "database" says, then run doctor again.');
  const isCurrent = needs === 'database' || (await pendingMigrations(context.db)).length === 0;
  return isCurrent
    ? undefined
    : skipped('The database lacks migrations: fix what the check "schema" says, then run doctor again.');
}

async function judged(run: () => Promise<Finding>, limitMs: number, needs: Check['needs']): Promise<Finding> {
  const enough = new AbortController();
  const late = async () => {
    await sleep(limitMs, undefined, { signal: enough.signal });
    const fix = 'Check that the server that this check asks runs, and that this machine can reach it.';
    return fault(`The check got no answer within ${limitMs / 1000} s.`, fix);
  };
  try {
    return await Promise.race([run(), late()]);
  } catch (error) {
    const cause = error instanceof Error ? faultOf(error) : undefined;
    const isConnection = needs && error instanceof Error && isConnectionError(error);
    const known = isConnection ? connectionFix(error) : (poolerFix(error) ?? rightsFix(error));
    const fix = known ?? 'Correct what the error names, then run doctor again.';
    return fault(`The check failed with an error: ${cause ?? 'unknown'}.`, fix);
  } finally {
    enough.abort();
  }
}
