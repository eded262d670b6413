import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { closeOnFailure } from '../lib/close-on-failure.ts';
import { readOwnFile, replaceOwnFile, unlessAbsent } from '../lib/private-files.ts';
import { freePort } from './free-port.ts';
import { type Account, cannotRun, serverAccount, spawnOptions } from './postgres/account.ts';
import { type Binaries, serverBinaries } from './postgres/binaries.ts';
import { createWhole, databaseHome } from './postgres/home.ts';
import { launchPostmaster, shutDownPostmaster, socketFolder } from './postgres/postmaster.ts';

const DATABASE = 'speechgate';
export const ROLE = 'speechgate';

export interface PostgresOptions {
  readonly dataDir: string;
  readonly port?: number;
  readonly onProgress?: (message: string) => void;
  /** False turns fsync off, and makes a login cheap, for tests. */
  readonly durable?: boolean;
  /** Starts a database even if no sandbox of this user created it, and records it as this user's. */
  readonly adopt?: boolean;
}

export interface RunningPostgres {
  readonly url: string;
  /** The database by its Unix socket, which costs less CPU. Only this user and root can use it. */
  readonly nearUrl: string;
  readonly adminUrl: string;
  readonly home: string;
  stop(): Promise<void>;
}

/**
 * Also stops a server that a killed process left in the directory.
 * @throws UnknownDatabaseError for a database that may not be this user's
 */
export async function startPostgres(options: PostgresOptions): Promise<RunningPostgres> {
  const onProgress = options.onProgress ?? (() => undefined);
  const isDurable = options.durable !== false;
  const account = await serverAccount();
  const home = await databaseHome(options.dataDir, account, onProgress, options.adopt);
  const binaries = await serverBinaries(home, account, onProgress);
  const { data, password } = await openCluster(home, binaries, account, isDurable, onProgress);
  const server = { ...binaries, account, data, logFile: join(home, 'server.log') };

  await shutDownPostmaster(server);
  const portFile = join(home, 'port');
  const formerPort = Number(await readOwnFile(portFile).catch(() => '')) || undefined;
  const port = options.port ?? (await freePort(formerPort));
  const url = (database: string) => `postgres://${ROLE}:${password}@127.0.0.1:${port}/${database}`;
  const stop = () => shutDownPostmaster(server);
  await launchPostmaster(server, port, isDurable);
  await closeOnFailure({ close: stop }, async () => {
    await replaceOwnFile(portFile, String(port));
    await ensureDatabase(url('postgres'), DATABASE);
  });
  const folder = socketFolder(data);
  const socket = new URLSearchParams({ host: folder, port: String(port), user: ROLE, password });
  return {
    url: url(DATABASE),
    nearUrl: folder === '' ? url(DATABASE) : `postgres:///${DATABASE}?${socket}`,
    adminUrl: url('postgres'),
    home,
    stop,
  };
}

export async function ensureDatabase(adminUrl: string, name: string): Promise<void> {
  const client = new pg.Client({ connectionString: adminUrl, ssl: false });
  await client.connect();
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
    if (!rowCount) await client.query(`create database ${pg.escapeIdentifier(name)}`);
  } finally {
    await client.end();
  }
}

/** The password is stored beside the data, so that both are kept or lost together. */
export async function openCluster(
  home: string,
  binaries: Binaries,
  account: Account,
  isDurable: boolean,
  onProgress: (message: string) => void,
): Promise<{ readonly data: string; readonly password: string }> {
  const directory = join(home, 'cluster');
  const data = join(directory, 'data');
  let version = await versionOf(data);
  if (version === undefined) {
    onProgress('Creating the embedded database');
    await createWhole(directory, (fresh) => fillCluster(fresh, binaries, account, isDurable));
    version = await versionOf(data);
  }
  if (version !== binaries.majorVersion) {
    throw new Error(
      `The database in ${home} is of PostgreSQL ${version ?? '(unknown)'}, but PostgreSQL ${binaries.majorVersion} is installed, which can't open it. ` +
        'Move that folder away to start with an empty database, or choose another DATA_DIR.',
    );
  }
  return { data, password: await readFile(join(directory, 'password'), 'utf8') };
}

const versionOf = async (data: string): Promise<string | undefined> =>
  (await unlessAbsent(readFile(join(data, 'PG_VERSION'), 'utf8')))?.trim();

async function fillCluster(directory: string, binaries: Binaries, account: Account, isDurable: boolean): Promise<void> {
  const passwordFile = join(directory, 'password');
  const data = join(directory, 'data');
  await writeFile(passwordFile, randomBytes(24).toString('base64url'), { mode: 0o600 });
  await mkdir(data, { mode: 0o700 });
  for (const path of [directory, passwordFile, data]) await chown(path, account.uid, account.gid);

  const parameters = [
    `--pgdata=${data}`,
    `--username=${ROLE}`,
    `--pwfile=${passwordFile}`,
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
    '--no-instructions',
    ...(isDurable ? [] : ['--no-sync', '--set=scram_iterations=1']),
  ];
  await promisify(execFile)(binaries.initdb, parameters, spawnOptions(account)).catch((error) => {
    throw typeof error.code === 'number' ? error : cannotRun(binaries.initdb, error);
  });
}
