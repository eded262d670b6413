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
      ? skipped('Not checked, because of --skip.')
      : await judged(async () => (await whatLacks(context, needs)) ?? run(context), limitMs, needs);
    return { name, ...(about !== undefined && { about }), ...finding };
  });
  for (const checked of running) yield await checked;
}

async function whatLacks(context: DoctorContext, needs: Check['needs']): Promise<Finding | undefined> {
  if (needs === undefined) return undefined;
  const isReached = await reachDatabase(context).then(
    () => true,
    () => false,
  );
  if (!isReached) return skipped('Not checked: the database is unavailable. See the check "database".');
  const isCurrent = needs === 'database' || (await pendingMigrations(context.db)).length === 0;
  return isCurrent ? undefined : skipped('Not checked: the database lacks migrations. See the check "schema".');
}

async function judged(run: () => Promise<Finding>, limitMs: number, needs: Check['needs']): Promise<Finding> {
  const enough = new AbortController();
  const late = async () => {
    await sleep(limitMs, undefined, { signal: enough.signal });
    const fix = 'Check that the checked service runs, and that this machine can reach it.';
    return fault(`The check got no answer within ${limitMs / 1000} s.`, fix);
  };
  try {
    return await Promise.race([run(), late()]);
  } catch (error) {
    const cause = error instanceof Error ? faultOf(error) : undefined;
    const isConnection = needs && error instanceof Error && isConnectionError(error);
    const known = isConnection ? connectionFix(error) : (poolerFix(error) ?? rightsFix(error));
    const fix = known ?? 'Fix the cause of this error, and repeat the check.';
    return fault(`The check failed with an error: ${cause ?? 'unknown'}.`, fix);
  } finally {
    enough.abort();
  }
}
