import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { Config } from '../settings/config.ts';
import { type Area, type Finding, fault, ok, warning } from './check.ts';
import type { KnownDatabase } from './known-database.ts';
import type { Patient } from './patient.ts';

/** Major versions: the oldest that works, and the newest that was tried. */
const OLDEST = 15;
const NEWEST = 18;
/** The database's clock judges leases and signatures that live for two minutes. */
const SKEW_FAULT_MS = 5_000;
const SKEW_WARNING_MS = 1_000;
const CLOCK_READINGS = 3;
/** What a process opens at most (docs/operations.md): for requests, beside the jobs it runs, for mail, and the primary. */
const REQUEST_CONNECTIONS = 20;
const WORKER_CONNECTIONS = 4;
const MAIL_CONNECTIONS = 2;

/** The server itself: reachable, of a version that works, durable, of the same time, with room. */
export function databaseChecks(known: KnownDatabase, { config, now }: Pick<Patient, 'config' | 'now'>): Area {
  return {
    checks: [
      { name: 'database', run: () => known.check(takesWrites) },
      { name: 'database-version', run: known.asking(isSupported) },
      { name: 'durability', run: known.asking(isDurable) },
      { name: 'clock', run: known.asking((db) => isOfOurTime(db, now)) },
      { name: 'connections', run: known.asking((db) => hasRoom(db, config)) },
    ],
  };
}

async function takesWrites(db: Database): Promise<Finding> {
  const { rows } = await sql<{ standby: boolean; read_only: string }>`
    select pg_is_in_recovery() as standby, current_setting('default_transaction_read_only') as read_only`.execute(db);
  if (rows[0]?.standby) return fault('It is a standby, which takes no writes.', 'Have DATABASE_URL name the primary.');
  if (rows[0]?.read_only === 'on') {
    const fix = 'Reset default_transaction_read_only of the role, the database or the server.';
    return fault('Its transactions are read-only.', fix);
  }
  return ok('It answers, and takes writes.');
}

async function isSupported(db: Database): Promise<Finding> {
  const { rows } = await sql<{ version: string }>`select current_setting('server_version_num') as version`.execute(db);
  return judgeVersion(Number(rows[0]?.version));
}

/** @param version as server_version_num has it, such as 150004 */
export function judgeVersion(version: number): Finding {
  const major = Math.floor(version / 10_000);
  const name = `PostgreSQL ${major}.${version % 10_000}`;
  if (major < OLDEST) return fault(`It is ${name}, which is too old.`, `Upgrade it to ${OLDEST} or newer.`);
  if (major > NEWEST) {
    return warning(`It is ${name}, which nobody has tried yet.`, `Use ${OLDEST} to ${NEWEST}, or try it out first.`);
  }
  return ok(`It is ${name}.`);
}

async function isDurable(db: Database): Promise<Finding> {
  const { rows } = await sql<{ name: string; setting: string }>`
    select name, setting from pg_settings
    where name in ('fsync', 'full_page_writes', 'synchronous_commit') order by name`.execute(db);
  const lax = rows.filter(({ setting }) => setting === 'off').map(({ name }) => name);
  if (lax.length === 0) return ok(rows.map(({ name, setting }) => `${name} is ${setting}`).join(', '));
  return fault(
    `${lax.join(' and ')} off: when its machine loses power, money that was booked is lost.`,
    lax.map((name) => `alter system set ${name} = on`).join('; ') +
      '; select pg_reload_conf(); and look whether the role or the database sets it.',
  );
}

async function isOfOurTime(db: Database, now: () => number): Promise<Finding> {
  let best = { skewMs: 0, doubtMs: Number.POSITIVE_INFINITY };
  for (let reading = 0; reading < CLOCK_READINGS; reading++) {
    const askedAt = now();
    const { rows } = await sql<{ at: string }>`
      select (extract(epoch from clock_timestamp()) * 1000)::text as at`.execute(db);
    const doubtMs = (now() - askedAt) / 2;
    if (doubtMs < best.doubtMs) best = { skewMs: Number(rows[0]?.at) - askedAt - doubtMs, doubtMs };
  }
  const apartMs = Math.max(0, Math.abs(best.skewMs) - best.doubtMs);
  const message = `The database's clock is ${(apartMs / 1000).toFixed(1)} s ${best.skewMs < 0 ? 'behind' : 'ahead of'} ours.`;
  const fix = 'Have both machines set their clocks by NTP (chrony, systemd-timesyncd).';
  if (apartMs > SKEW_FAULT_MS) return fault(message, fix);
  return apartMs > SKEW_WARNING_MS ? warning(message, fix) : ok(`The database's clock is ours, within a second.`);
}

async function hasRoom(db: Database, config: Config): Promise<Finding> {
  const { rows } = await sql<{ usable: number; others: number; role_limit: number; database_limit: number }>`
    select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
             - coalesce(current_setting('reserved_connections', true)::int, 0) as usable,
           (select count(*)::int from pg_stat_activity
              where datid is not null and usesysid <> (select oid from pg_roles where rolname = current_user)) as others,
           (select rolconnlimit from pg_roles where rolname = current_user) as role_limit,
           (select datconnlimit from pg_database where datname = current_database()) as database_limit`.execute(db);
  const [row] = rows;
  if (!row) throw new Error('the server tells nothing of its limits');
  const limits = [row.usable - row.others, row.role_limit, row.database_limit].filter((limit) => limit >= 0);
  const room = Math.min(...limits);
  const needed = neededConnections(config);
  const told = `These processes open up to ${needed} connections, and there is room for ${room}`;
  if (needed <= room) return ok(`${told}: enough for ${Math.floor(room / needed)} such replicas.`);
  const fix =
    'Raise max_connections (or the limit of the role or database), or lower WEB_CONCURRENCY or JOB_CONCURRENCY.';
  return fault(`${told}.`, fix);
}

function neededConnections({ webConcurrency, speech, jobs, feedback }: Config): number {
  const background = (speech ? jobs.concurrency + WORKER_CONNECTIONS : 0) + (feedback?.mail ? MAIL_CONNECTIONS : 0);
  return webConcurrency * REQUEST_CONNECTIONS + background + (webConcurrency > 1 ? 1 : 0);
}
