import { sql } from 'kysely';
import type { Config } from '../../config/config.ts';
import { readRoleRights } from '../../db/application-role.ts';
import { type Database, openDatabase, poolParametersOf, SESSION_SETTINGS, START_SETTINGS } from '../../db/database.ts';
import { connectionFix, faultOf, poolerFix, READ_ONLY_FIX } from '../../db/database-errors.ts';
import { unixSeconds } from '../../db/expressions.ts';
import { findNotValid, newerMigrations, pendingMigrations } from '../../db/migrate.ts';
import { isCommitKept } from '../../db/rate-window.ts';
import { nameStatementTwice } from '../../db/readiness.ts';
import { describeMismatch, readInstance } from '../../ledger/database-identity.ts';
import { counted } from '../../lib/counted.ts';
import { type Check, type DoctorContext, type Finding, fault, ok, reachDatabase, skipped, warning } from './check.ts';

const OLDEST = 15;
const NEWEST = 18;
/** The database's clock judges leases and signatures, which last two minutes. */
const SKEW_FAULT_MS = 5_000;
const SKEW_WARNING_MS = 1_000;
const CLOCK_READINGS = 3;
/** The most that a process opens (docs/operate.md). A running job needs one more, and so does the primary. */
const REQUEST_CONNECTIONS = 20;
const WORKER_CONNECTIONS = 4;
const MAIL_CONNECTIONS = 2;

export const DATABASE_CHECKS: readonly Check[] = [
  { name: 'database', run: takesWrites },
  { name: 'database-version', needs: 'database', run: isSupported },
  { name: 'durability', needs: 'database', run: isDurable },
  { name: 'session', needs: 'database', run: hasOwnSettings },
  { name: 'pooler', needs: 'database', run: keepsSessions },
  { name: 'commits', needs: 'tables', run: keepsCommits },
  { name: 'standby', needs: 'database', run: waitsForStandby },
  { name: 'clock', needs: 'database', run: isOfOurTime },
  { name: 'connections', needs: 'database', run: hasRoom },
  { name: 'schema', needs: 'database', run: isCurrent },
  { name: 'constraints', needs: 'tables', run: areValid },
  { name: 'rights', needs: 'tables', run: hasRights },
  { name: 'money', needs: 'tables', run: isOurMoney },
];

async function takesWrites(context: DoctorContext): Promise<Finding> {
  const { db } = context;
  try {
    await reachDatabase(context);
  } catch (error) {
    return fault(`The connection to the database fails: ${faultOf(error as Error)}.`, connectionFix(error as Error));
  }
  if ((await readSetting(db, 'transaction_read_only')) === 'off') return ok('The database answers and accepts writes.');
  return fault('The database is read-only.', READ_ONLY_FIX);
}

async function readSetting(db: Database, name: string): Promise<string> {
  const setting = db.selectNoFrom(({ fn, val }) => fn<string>('current_setting', [val(name)]).as('value'));
  return (await setting.executeTakeFirstOrThrow()).value;
}

async function isSupported({ db }: DoctorContext): Promise<Finding> {
  return judgeVersion(Number(await readSetting(db, 'server_version_num')));
}

/** @param version as in server_version_num, such as 150004 */
export function judgeVersion(version: number): Finding {
  const major = Math.floor(version / 10_000);
  const name = `PostgreSQL ${major}.${version % 10_000}`;
  if (major < OLDEST)
    return fault(`The database is ${name}, which is too old.`, `Upgrade PostgreSQL to ${OLDEST} or newer.`);
  if (major > NEWEST) {
    return warning(
      `The database is ${name}, which this release was not tested with.`,
      `Use PostgreSQL ${OLDEST} to ${NEWEST}, or test it first.`,
    );
  }
  return ok(`The database is ${name}.`);
}

const settingsOf = (db: Database) =>
  db
    .withTables<{ pg_settings: { name: string; setting: string; reset_val: string } }>()
    .selectFrom('pg_settings')
    .orderBy('name');

async function isDurable({ db }: DoctorContext): Promise<Finding> {
  const rows = await settingsOf(db)
    .select(['name', 'setting'])
    .where('name', 'in', ['fsync', 'full_page_writes', 'synchronous_commit'])
    .execute();
  const lax = rows.filter(({ setting }) => setting === 'off').map(({ name }) => name);
  if (lax.length === 0) return ok(rows.map(({ name, setting }) => `${name} is ${setting}`).join(', '));
  return fault(
    `These settings are off: ${lax.join(', ')}. A power failure can lose booked money.`,
    `As a superuser run: ${lax.map((name) => `alter system set ${name} = on`).join('; ')}` +
      '; select pg_reload_conf(). Also remove these settings from the role and the database.',
  );
}

/** Sessions set these themselves. Behind a pooler, another client of the same server connection may undo that. */
async function hasOwnSettings({ db, config }: DoctorContext): Promise<Finding> {
  const wanted: Readonly<Record<string, string>> = { ...SESSION_SETTINGS, synchronous_commit: 'off' };
  const rows = await settingsOf(db)
    .select(['name', 'reset_val as setting'])
    .where(({ fn }) => fn<string>('lower', ['name']), 'in', Object.keys(wanted))
    .execute();
  const isOther = ({ name, setting }: (typeof rows)[number]) => {
    if (name === 'synchronous_commit') return setting === 'off';
    if (name === 'search_path') return !/^("?\$user"?, *)?public$/.test(setting);
    return !setting.startsWith(wanted[name.toLowerCase()] ?? '');
  };
  const others = rows.filter(isOther).map(({ name, setting }) => `${name} is ${setting}`);
  others.push(...poolParametersOf(config.databaseUrl).map((name) => `DATABASE_URL has ${name}`));
  if (others.length === 0) return ok('The role, the database and DATABASE_URL change no settings of sessions.');
  return warning(
    `The role, the database or DATABASE_URL has settings that are wrong for the service: ${others.join('; ')}. The service overrides them, but behind a pooler they can come back.`,
    'Reset them (alter role NAME reset …, alter database NAME reset …), and remove them from DATABASE_URL.',
  );
}

/** PgBouncer gives the connections of its clients in turn to each of its own, and ignores what they ask for. */
async function keepsSessions({ db, config }: DoctorContext): Promise<Finding> {
  try {
    await nameStatementTwice(db);
  } catch (error) {
    const fix = poolerFix(error);
    if (!fix) throw error;
    return fault(`Prepared statements fail behind a pooler: ${faultOf(error as Error)}.`, fix);
  }
  const requests = openDatabase(config.databaseUrl, { maxConnections: 1, namedStatements: false, byKey: true });
  try {
    const values = await Promise.all(Object.keys(START_SETTINGS).map((name) => readSetting(requests, name)));
    const lost = Object.entries(START_SETTINGS).filter(([, wanted], at) => values[at] !== wanted);
    if (lost.length === 0)
      return ok('Connections to the database keep the settings that the service sets at their start.');
    const role = decodeURIComponent(new URL(config.databaseUrl).username) || 'NAME';
    return warning(
      `A pooler ignores settings that connections need: ${lost.map(([name]) => name).join(', ')}.`,
      `Set the values in the role: ${lost.map(([name, value]) => `alter role ${role} set ${name} = '${value}'`).join('; ')}.`,
    );
  } finally {
    await requests.destroy();
  }
}

/** Some poolers acknowledge a write that they don't commit, such as pgpool in raw mode. */
async function keepsCommits({ db }: DoctorContext): Promise<Finding> {
  if ((await readSetting(db, 'transaction_read_only')) === 'on')
    return skipped('The database accepts no writes: fix what the check "database" says, then run doctor again.');
  if (await isCommitKept(db)) return ok('A committed change is visible on another connection.');
  return fault(
    'The database acknowledged a commit, but another connection does not see it: booked money can be lost.',
    'Connect to PostgreSQL directly, or let the pooler forward transactions and read from the primary (pgpool: ' +
      "backend_clustering_mode = 'streaming_replication').",
  );
}

/** Without synchronous_standby_names a primary does not wait for its standby, so a failover loses commits. */
async function waitsForStandby({ db }: DoctorContext): Promise<Finding> {
  const { rows } = await sql<{ has_standby: boolean; names: string; commit: string }>`
    select exists (
             select from pg_stat_replication where state is distinct from 'backup' and pid not in (
               select active_pid from pg_replication_slots where slot_type = 'logical' and active_pid is not null)
           ) or exists (select from pg_replication_slots where slot_type = 'physical') as has_standby,
           current_setting('synchronous_standby_names') as names,
           current_setting('synchronous_commit') as commit`.execute(db);
  const { has_standby: hasStandby = false, names = '', commit = '' } = rows[0] ?? {};
  if (!hasStandby) return ok('The database has no standby.');
  const lost = 'a failover can lose booked payments.';
  if (names.trim() === '') {
    const fix =
      "As a superuser run: alter system set synchronous_standby_names = 'ANY 1 (*)'; select pg_reload_conf(). See docs/scaling.md.";
    return warning(`Commits do not wait for the standby, because synchronous_standby_names is empty: ${lost}`, fix);
  }
  if (commit === 'local') {
    return warning(
      `Commits do not wait for the standby, because synchronous_commit is local: ${lost}`,
      'Set synchronous_commit to on in PostgreSQL.',
    );
  }
  return ok(`Commits wait for a standby: synchronous_standby_names is ${names}.`);
}

async function isOfOurTime({ db, now }: DoctorContext): Promise<Finding> {
  let best = { skewMs: 0, doubtMs: Number.POSITIVE_INFINITY };
  for (let reading = 0; reading < CLOCK_READINGS; reading++) {
    const askedAt = now();
    const { at } = await db
      .selectNoFrom(({ fn }) => unixSeconds(fn<Date>('clock_timestamp')).as('at'))
      .executeTakeFirstOrThrow();
    const doubtMs = (now() - askedAt) / 2;
    if (doubtMs < best.doubtMs) best = { skewMs: at * 1000 - askedAt - doubtMs, doubtMs };
  }
  const apartMs = Math.max(0, Math.abs(best.skewMs) - best.doubtMs);
  const message = `The database's clock is ${(apartMs / 1000).toFixed(1)} s ${best.skewMs < 0 ? 'behind' : 'ahead of'} the clock of this machine.`;
  const fix = 'Synchronize the clocks of both machines by NTP (chrony, systemd-timesyncd).';
  if (apartMs > SKEW_FAULT_MS) return fault(message, fix);
  return apartMs > SKEW_WARNING_MS
    ? warning(message, fix)
    : ok("The database's clock and the clock of this machine differ by at most one second.");
}

async function hasRoom({ db, config }: DoctorContext): Promise<Finding> {
  const { rows } = await sql<{ usable: number; others: number; role_limit: number; database_limit: number }>`
    select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
             - coalesce(current_setting('reserved_connections', true)::int, 0) as usable,
           (select count(*)::int from pg_stat_activity
              where datid is not null and usesysid <> (select oid from pg_roles where rolname = current_user)) as others,
           (select rolconnlimit from pg_roles where rolname = current_user) as role_limit,
           (select datconnlimit from pg_database where datname = current_database()) as database_limit`.execute(db);
  const [row] = rows;
  if (!row) throw new Error('the database did not report its connection limits');
  const limits = [row.usable - row.others, row.role_limit, row.database_limit].filter((limit) => limit >= 0);
  const room = Math.min(...limits);
  const needed = neededConnections(config);
  const summary = `This service opens up to ${needed} database connections, and the database allows ${room}`;
  if (needed <= room) return ok(`${summary}: enough for ${counted(Math.floor(room / needed), 'replica')}.`);
  const fix =
    'Raise max_connections (or the limit of the role or database), or lower WEB_CONCURRENCY or JOB_CONCURRENCY.';
  return fault(`${summary}.`, fix);
}

function neededConnections({ webConcurrency, speech, jobs, feedback }: Config): number {
  const background = (speech ? jobs.concurrency + WORKER_CONNECTIONS : 0) + (feedback?.mail ? MAIL_CONNECTIONS : 0);
  return webConcurrency * REQUEST_CONNECTIONS + background + (webConcurrency > 1 ? 1 : 0);
}

const NAMED = 4;

async function isCurrent({ db }: DoctorContext): Promise<Finding> {
  const pending = await pendingMigrations(db);
  if (pending.length > 0) {
    return fault(
      `The database lacks ${counted(pending.length, 'migration')}: ${short(pending)}.`,
      'Run npm run migrate.',
    );
  }
  const newer = await newerMigrations(db);
  if (newer.length === 0) return ok('The database has all migrations.');
  const fix =
    'Upgrade this machine to the newer release. Only the release directly before it also works with this schema.';
  return warning(`A newer release has migrated the database: ${short(newer)} is unknown here.`, fix);
}

async function areValid({ db }: DoctorContext): Promise<Finding> {
  const broken = (await findNotValid(db)).map(({ name }) => name);
  if (broken.length === 0) return ok('All rows satisfy all constraints.');
  const fix = 'Run npm run migrate to check them again, and npm run audit to list the rows that violate them.';
  return warning(`Old rows may violate these constraints: ${short(broken)}.`, fix);
}

async function hasRights({ db, isSandbox }: DoctorContext): Promise<Finding> {
  if (isSandbox) return skipped('The sandbox connects as the owner of the tables, so no action is needed.');
  const { role, missing, mayDropGuards, excess } = await readRoleRights(db);
  if (missing.length > 0) {
    const fix = `Run DATABASE_APP_ROLE=${role} npm run migrate as the owner of the tables, to grant these rights.`;
    return fault(`The database role ${role} lacks rights. It can't ${short(missing)}.`, fix);
  }
  if (mayDropGuards || excess.length > 0) {
    const can = mayDropGuards ? 'disable the triggers that protect the ledger' : short(excess);
    const fix =
      'Create a separate role (create role speechgate_app login …), run npm run migrate, and connect as that role.';
    return warning(`The database role ${role} has rights that the service does not need: it can ${can}.`, fix);
  }
  return ok(`The database role ${role} has exactly the rights that the service needs.`);
}

async function isOurMoney({ db, config: { x402 } }: DoctorContext): Promise<Finding> {
  const { denomination } = await readInstance(db);
  const settings = x402 && { network: x402.asset.network, asset: x402.asset.address.toLowerCase() };
  if (!denomination) return ok('The database has no network and token yet. The first start of the service sets them.');
  if (!settings) return ok(`Balances in the database are on ${denomination.network}, but X402_PAY_TO is unset.`);
  if (denomination.network === settings.network && denomination.asset === settings.asset) {
    return ok(`Balances in the database are on ${denomination.network}, as X402_NETWORK and X402_ASSET say.`);
  }
  return fault(
    `Balances in the database are in the token ${denomination.asset} on ${denomination.network}, but X402_ASSET or X402_NETWORK is different.`,
    describeMismatch({ database: denomination, settings }),
  );
}

const short = (names: readonly string[]): string =>
  names.slice(0, NAMED).join(', ') + (names.length > NAMED ? ` and ${names.length - NAMED} more` : '');
