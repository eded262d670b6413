import { statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname } from 'node:path';
import { sql } from 'kysely';
import { parseAudioStoreSetting } from '../audio/store-setting.ts';
import type { Database } from '../db/database.ts';
import type { Config } from '../settings/config.ts';
import { type Area, type Finding, fault, ok, skipped, warning } from './check.ts';
import type { KnownDatabase } from './known-database.ts';

const MIB = 1024 * 1024;
const FAULT_BYTES = 256 * MIB;
const WARNING_BYTES = 2048 * MIB;
const WARNING_SHARE = 0.05;

interface Room {
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** Room on the disks of this machine, and on the database's where it is this machine. */
export function diskChecks(known: KnownDatabase, config: Config): Area {
  const store = parseAudioStoreSetting(config.jobs.audioStore);
  const folders = { ...(store?.kind === 'file' && { audio: store.path }), 'temporary files': tmpdir() };
  return {
    checks: [
      ...Object.entries(folders).map(([about, folder]) => ({
        name: 'disk',
        about,
        run: async () => judgeRoom(await roomOf(folder), fixOf(about)),
      })),
      { name: 'disk', about: 'database', run: known.asking((db) => databaseHasRoom(db, config)) },
    ],
  };
}

const fixOf = (about: string): string =>
  about === 'audio'
    ? 'Make room, or lower AUDIO_RETENTION_SECONDS; or use a bucket (AUDIO_STORE=s3://…).'
    : 'Make room on that disk, or give it a larger one.';

/** The room of the disk that holds the folder, or will hold it once it is made. */
async function roomOf(folder: string): Promise<Room> {
  try {
    const { bavail, blocks, bsize } = await statfs(folder);
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  } catch (error) {
    const parent = dirname(folder);
    const isAbsent = ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '');
    if (!isAbsent || parent === folder) throw error;
    return roomOf(parent);
  }
}

export function judgeRoom({ freeBytes, totalBytes }: Room, fix: string): Finding {
  const told = `${gib(freeBytes)} of ${gib(totalBytes)} are free`;
  if (freeBytes < FAULT_BYTES) return fault(`${told}.`, fix);
  if (freeBytes < WARNING_BYTES || freeBytes < totalBytes * WARNING_SHARE) return warning(`${told}.`, fix);
  return ok(`${told}.`);
}

/** PostgreSQL tells no disk; its folder can be looked at where it is on this machine and the role may know its name. */
async function databaseHasRoom(db: Database, { databaseUrl }: Config): Promise<Finding> {
  const { rows } = await sql<{ bytes: bigint; folder: string | null; local: boolean }>`
    select pg_database_size(current_database()) as bytes,
           (select setting from pg_settings where name = 'data_directory') as folder,
           coalesce(inet_server_addr() = inet_client_addr(), true) as local`.execute(db);
  const [row] = rows;
  const size = `The database has ${gib(Number(row?.bytes ?? 0))}`;
  const host = new URL(databaseUrl).hostname;
  if (!row?.folder || !row.local)
    return skipped(`${size}; PostgreSQL does not tell the room of its disk (${host || 'socket'}).`);
  const room = await roomOf(row.folder).catch(() => undefined);
  if (!room) return skipped(`${size}; its folder can't be looked at from here.`);
  const { state, message, fix } = judgeRoom(room, 'Make room on the disk of the database, or give it a larger one.');
  return { state, message: `${size}; ${message}`, ...(fix !== undefined && { fix }) };
}

const gib = (bytes: number): string => `${(bytes / 1024 / MIB).toFixed(1)} GiB`;
