import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { readOwnFile, replaceOwnFile } from '../lib/private-files.ts';
import { freePort, isFree } from './free-port.ts';
import { type Account, serverAccount } from './postgres/account.ts';
import { type Binaries, serverBinaries } from './postgres/binaries.ts';
import { type Cluster, openCluster, ROLE } from './postgres/cluster.ts';
import { databaseHome } from './postgres/home.ts';
import { findPostmaster, launch, type Postmaster, shutDown } from './postgres/postmaster.ts';
import { connect, ensureDatabase, register, unregister } from './postgres/usage.ts';

const DATABASE = 'speechgate';
/** Recovery after a crash, and a shutdown that somebody else has begun, happen within this time. */
const PATIENCE_MS = 60_000;
const POLL_MS = 20;

export interface PostgresOptions {
  /** The database lives in its subdirectory `postgres`, or outside it with a link there (see databaseHome). */
  readonly dataDir: string;
  /** Port on 127.0.0.1; by default the former one, or any that is free. */
  readonly port?: number;
  readonly onProgress?: (message: string) => void;
  /** False switches fsync off: for tests, whose data may be lost with the machine's power. */
  readonly durable?: boolean;
  /** Starts a database also where no sandbox of this user has made it, and takes it for its own from then on. */
  readonly adopt?: boolean;
}

export interface RunningPostgres {
  /** Of the database `speechgate`. Holds the password of a superuser. */
  readonly url: string;
  /** Likewise, by its Unix socket where it has one: at less CPU, for processes of this user or root. */
  readonly nearUrl: string;
  /** Of the database `postgres` on the same server. */
  readonly adminUrl: string;
  /** Where its files really are. */
  readonly home: string;
  /** Gives the server up. The last process that uses it stops it; close every other connection first. */
  stop(): Promise<void>;
}

interface Place {
  readonly account: Account;
  readonly binaries: Binaries;
  readonly cluster: Cluster;
  readonly home: string;
  readonly logFile: string;
}

/**
 * Starts the embedded PostgreSQL of the sandbox and the tests. Several processes may start it on the same directory:
 * they share one server, which runs until the last of them stops. A server that a killed process left behind is used
 * on. Throws with the reason and a way out; UnknownDatabaseError for a database that nobody knows to be this user's.
 */
export async function startPostgres(options: PostgresOptions): Promise<RunningPostgres> {
  const onProgress = options.onProgress ?? (() => undefined);
  const account = await serverAccount();
  const home = await databaseHome(options.dataDir, account, onProgress, options.adopt);
  const binaries = await serverBinaries(home, account, onProgress);
  const cluster = await openCluster(home, binaries, account, options.durable !== false, onProgress);

  const place = { account, binaries, cluster, home, logFile: join(home, 'server.log') };
  const { client, port } = await attach(place, options);
  await ensureDatabase(client, DATABASE);
  const { rows } = await client.query<{ folder: string }>(
    "select current_setting('unix_socket_directories') as folder",
  );
  keepsProcessAlive(client, false);
  await replaceOwnFile(join(home, 'port'), String(port));

  const url = (database: string) => `postgres://${ROLE}:${cluster.password}@127.0.0.1:${port}/${database}`;
  const socket = new URLSearchParams({
    host: rows[0]?.folder ?? '',
    port: String(port),
    user: ROLE,
    password: cluster.password,
  });
  let stopped: Promise<void> | undefined;
  return {
    url: url(DATABASE),
    nearUrl: socket.get('host') === '' ? url(DATABASE) : `postgres:///${DATABASE}?${socket}`,
    adminUrl: url('postgres'),
    home,
    stop: () => {
      stopped ??= leave(place, client, port);
      return stopped;
    },
  };
}

/** Joins the server that runs, or starts one and joins that. */
async function attach(place: Place, options: PostgresOptions): Promise<{ client: pg.Client; port: number }> {
  const deadline = performance.now() + PATIENCE_MS;
  while (performance.now() < deadline) {
    const running = await findPostmaster(place.cluster.data);
    if (running) {
      const client = await joinServer(place, running, options);
      if (client) return { client, port: running.port };
      await sleep(POLL_MS);
    } else {
      await startServer(place, options);
    }
  }
  const holder = await findPostmaster(place.cluster.data);
  throw new Error(
    `The embedded PostgreSQL${holder ? ` (process ${holder.pid})` : ''} did not get ready within ${PATIENCE_MS / 1000} s. ` +
      `See its log, ${place.logFile}; ${holder ? `stop it (kill -INT ${holder.pid})` : 'end its old processes'} and start again.`,
  );
}

/** Undefined when the server is not ready, is just being stopped, or was stopped here because its settings don't fit. */
async function joinServer(place: Place, running: Postmaster, options: PostgresOptions): Promise<pg.Client | undefined> {
  const client = await connect(place.cluster, running.port);
  if (!client) return undefined;
  try {
    if (!(await register(client))) {
      await client.end();
      return undefined;
    }
    const misfit = await whyUnsuitable(client, running, options);
    if (!misfit) return client;
    const alone = await unregister(client);
    if (alone) await stopServer(place);
    await client.end();
    if (!alone)
      throw new Error(`Another process uses the embedded PostgreSQL of ${options.dataDir}, ${misfit}: stop it first.`);
    return undefined;
  } catch (error) {
    await client.end();
    throw error;
  }
}

async function whyUnsuitable(
  client: pg.Client,
  running: Postmaster,
  { port, durable }: PostgresOptions,
): Promise<string | undefined> {
  if (port !== undefined && port !== running.port) return `which listens on port ${running.port} instead of ${port}`;
  const { rows } = await client.query("select current_setting('fsync') as fsync");
  return durable !== false && rows[0].fsync === 'off' ? 'which runs without fsync' : undefined;
}

/** Returns without a server when another process was faster, or when a second attempt makes sense. */
async function startServer(place: Place, options: PostgresOptions): Promise<void> {
  const { account, binaries, cluster, logFile } = place;
  const port = options.port ?? (await freePort(await formerPort(place.home)));
  const outcome = await launch(
    { postgres: binaries.postgres, data: cluster.data, logFile, port, durable: options.durable !== false },
    account,
  );
  if (outcome.ready || (await findPostmaster(cluster.data))) return;
  if (!(await isFree(port))) {
    if (options.port === undefined) return;
    throw new Error(`Port ${port} for the embedded PostgreSQL is taken: free it, or choose another one.`);
  }
  // The workers of a server that was killed end a moment after it.
  if (!outcome.log.includes('is still in use')) {
    throw new Error(`The embedded PostgreSQL did not start: ${outcome.log.trim()}`);
  }
  await sleep(POLL_MS);
}

async function formerPort(home: string): Promise<number | undefined> {
  return Number(await readOwnFile(join(home, 'port')).catch(() => '')) || undefined;
}

/** pg has `ref` and `unref` as a socket has; its types don't name them. */
function keepsProcessAlive(client: pg.Client, alive: boolean): void {
  const handle = client as pg.Client & { ref(): void; unref(): void };
  if (alive) handle.ref();
  else handle.unref();
}

async function leave(place: Place, client: pg.Client, port: number): Promise<void> {
  let connection: pg.Client | undefined = client;
  keepsProcessAlive(client, true);
  try {
    await client.query('select');
  } catch {
    // The server has restarted after a crash of its own, or is gone.
    connection = await connect(place.cluster, port);
  }
  if (!connection) return;
  if (await unregister(connection)) await stopServer(place);
  await connection.end();
}

const stopServer = ({ account, binaries: { pgCtl }, cluster: { data } }: Place) =>
  shutDown({ pgCtl, data }, account, PATIENCE_MS);
