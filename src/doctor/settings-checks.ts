import { readFile } from 'node:fs/promises';
import { sql } from 'kysely';
import { parseAudioStoreSetting } from '../audio/store-setting.ts';
import type { Database } from '../db/database.ts';
import type { Config } from '../settings/config.ts';
import type { Misspelling } from '../settings/misspelt.ts';
import { type Area, type Finding, fault, ok, skipped, warning } from './check.ts';
import type { KnownDatabase } from './known-database.ts';
import type { Patient } from './patient.ts';

/** Descriptors that a process needs beside its connections: log, database, outside parts, audio. */
const OTHER_FILES = 500;
const LATE_RECONCILE_MS = 300_000;

/** What the settings say that can be read, and is still wrong. */
export function settingsChecks(known: KnownDatabase, { config, misspelt }: Pick<Patient, 'config' | 'misspelt'>): Area {
  return {
    checks: [
      { name: 'settings', run: async () => areMeant(config, misspelt) },
      { name: 'file-descriptors', run: () => areEnough(config.maxConnections) },
      { name: 'replicas', run: known.asking((db) => shareTheirStore(db, config)) },
    ],
  };
}

function areMeant({ reconcileIntervalMs }: Config, misspelt: readonly Misspelling[]): Finding {
  if (misspelt.length > 0) {
    const named = misspelt.map(({ name, meant }) => `${name} (${meant}?)`).join(', ');
    return warning(`Variables that are no settings: ${named}.`, 'Correct their names, or unset them.');
  }
  if (reconcileIntervalMs > LATE_RECONCILE_MS) {
    const fix = 'Unset RECONCILE_INTERVAL_MS, which is 15000 then.';
    return warning(`What dead processes leave is finished every ${reconcileIntervalMs / 1000} s only.`, fix);
  }
  return ok('No variable looks like a setting and is none.');
}

/** By the limit of this shell; the service's own is meant to be the same. */
async function areEnough(maxConnections: number): Promise<Finding> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const limit = Number(/^Max open files +(\d+)/m.exec(limits)?.[1]);
  if (!Number.isSafeInteger(limit)) return skipped('This system does not tell how many files a process may open.');
  if (limit >= maxConnections + OTHER_FILES) return ok(`A process may open ${limit}.`);
  const fix = `Raise the limit (ulimit -n, LimitNOFILE), or set MAX_CONNECTIONS below ${Math.max(limit - OTHER_FILES, 1)}.`;
  return fault(`A process may open ${limit} files, and MAX_CONNECTIONS is ${maxConnections}.`, fix);
}

/** Machines that use the database under our role's name, as far as the server sees them. */
async function shareTheirStore(db: Database, { jobs }: Config): Promise<Finding> {
  const { rows } = await sql<{ machines: number }>`
    select count(distinct case when client_addr is null or client_addr in ('127.0.0.1', '::1', inet_server_addr())
                               then 'the database' else host(client_addr) end)::int as machines
    from pg_stat_activity
    where application_name = 'speechgate' and usesysid = (select oid from pg_roles where rolname = current_user)`.execute(
    db,
  );
  const machines = rows[0]?.machines ?? 0;
  if (machines <= 1) return ok('One machine uses the database.');
  if (parseAudioStoreSetting(jobs.audioStore)?.kind !== 'file')
    return ok(`${machines} machines share a bucket for audio.`);
  const fix = 'Use a bucket (AUDIO_STORE=s3://…), or make sure that the folder is one that they share.';
  return warning(`${machines} machines use the database, and AUDIO_STORE is a folder of this one.`, fix);
}
