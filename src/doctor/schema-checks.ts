import type { Database } from '../db/database.ts';
import { newerMigrations, pendingMigrations } from '../db/migrate.ts';
import { readRoleRights } from '../db/role-rights.ts';
import { findNotValid } from '../db/validate-constraints.ts';
import { describeMismatch } from '../ledger/belonging.ts';
import { readInstance } from '../ledger/instance.ts';
import type { Config } from '../settings/config.ts';
import { type Area, type Finding, fault, ok, warning } from './check.ts';
import type { KnownDatabase } from './known-database.ts';

/** How many rights a line names. */
const NAMED = 4;

/** What is in the database: its schema, what guards it, and whose money it holds. */
export function schemaChecks(known: KnownDatabase, config: Config): Area {
  return {
    checks: [
      { name: 'schema', run: known.asking(isCurrent) },
      { name: 'constraints', run: known.reading(areValid) },
      { name: 'rights', run: known.reading(hasRights) },
      { name: 'money', run: known.reading((db) => isOurMoney(db, config)) },
    ],
  };
}

async function isCurrent(db: Database): Promise<Finding> {
  const pending = await pendingMigrations(db);
  if (pending.length > 0) {
    return fault(`It lacks ${count(pending.length, 'migration')}: ${short(pending)}.`, 'Run npm run migrate.');
  }
  const newer = await newerMigrations(db);
  if (newer.length === 0) return ok('It is current.');
  const fix = 'Start the newer release here too; the release before it works with this schema until then.';
  return warning(`A newer release has migrated it: ${short(newer)} is unknown here.`, fix);
}

async function areValid(db: Database): Promise<Finding> {
  const broken = (await findNotValid(db)).map(({ name }) => name);
  if (broken.length === 0) return ok('Every constraint holds for every row.');
  const fix = 'Run npm run migrate, which checks them again, and npm run audit, which shows the rows that break them.';
  return warning(`${short(broken)} may be broken by rows of an earlier release.`, fix);
}

async function hasRights(db: Database): Promise<Finding> {
  const { role, missing, mayDropGuards, excess } = await readRoleRights(db);
  if (missing.length > 0) {
    const fix = `Run DATABASE_APP_ROLE=${role} npm run migrate as the owner of the tables, which gives it its rights.`;
    return fault(`The role ${role} can't ${short(missing)}.`, fix);
  }
  if (mayDropGuards || excess.length > 0) {
    const can = mayDropGuards ? 'switch off what guards the books' : short(excess);
    const fix =
      'Make a role of its own (create role speechgate_app login …), run npm run migrate, and connect as that.';
    return warning(`The role ${role} can ${can}, which the service never does.`, fix);
  }
  return ok(`The role ${role} can do what the service does, and no more.`);
}

async function isOurMoney(db: Database, { x402 }: Config): Promise<Finding> {
  const { denomination } = await readInstance(db);
  const settings = x402 && { network: x402.asset.network, asset: x402.asset.address.toLowerCase() };
  if (!denomination) return ok('The database belongs to no network yet; the first start decides.');
  if (!settings) return ok(`The database belongs to ${denomination.network}, and x402 is off.`);
  if (denomination.network === settings.network && denomination.asset === settings.asset) {
    return ok(`The database belongs to ${denomination.network}, as the settings do.`);
  }
  return fault(
    `The database belongs to ${denomination.network} and ${denomination.asset}, the settings to another.`,
    describeMismatch({ database: denomination, settings }),
  );
}

const count = (number: number, what: string): string => `${number} ${what}${number === 1 ? '' : 's'}`;

const short = (names: readonly string[]): string =>
  names.slice(0, NAMED).join(', ') + (names.length > NAMED ? ` and ${names.length - NAMED} more` : '');
