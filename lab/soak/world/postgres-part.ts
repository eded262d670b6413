import { join } from 'node:path';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { serverAccount } from '../../../src/sandbox/postgres/account.ts';
import { serverBinaries } from '../../../src/sandbox/postgres/binaries.ts';
import { databaseHome } from '../../../src/sandbox/postgres/home.ts';
import {
  findPostmaster,
  launchPostmaster,
  type Server,
  shutDownPostmaster,
} from '../../../src/sandbox/postgres/postmaster.ts';
import { ensureDatabase, openCluster, ROLE } from '../../../src/sandbox/postgres.ts';
import type { Owner } from '../../../test/support/child.ts';
import { isThere } from '../../../test/support/several-processes.ts';
import { until } from '../../../test/support/until.ts';
import { processTree } from '../../bench/processes.ts';
import type { Part } from './world.ts';

const DATABASE = 'speechgate';

/** A PostgreSQL server with fsync. Signals reach all its processes. */
export class PostgresPart implements Part {
  readonly name = 'postgres';
  /** URL of the database, as a superuser. */
  readonly url: string;
  readonly #server: Server;
  readonly #port: number;

  private constructor(server: Server, password: string, port: number) {
    this.#server = server;
    this.#port = port;
    this.url = `postgres://${ROLE}:${password}@127.0.0.1:${port}/${DATABASE}`;
  }

  /** Creates a cluster in a folder and starts it. */
  static async open(owner: Owner, folder: string): Promise<PostgresPart> {
    const account = await serverAccount();
    const tell = () => {};
    const home = await databaseHome(folder, account, tell);
    const binaries = await serverBinaries(home, account, tell);
    const { data, password } = await openCluster(home, binaries, account, true, tell);
    const server = { ...binaries, account, data, logFile: join(home, 'server.log') };
    const part = new PostgresPart(server, password, await freePort());
    // SIGKILL leaves shared memory behind.
    owner.teardown(() => part.stop().finally(() => part.kill()));
    await part.start();
    await ensureDatabase(part.url.replace(/\w+$/, 'postgres'), DATABASE);
    return part;
  }

  async start(): Promise<void> {
    if (await this.#postmaster()) return;
    await launchPostmaster(this.#server, this.#port, true);
  }

  /** Kills all processes at once, like a power cut. */
  async kill(): Promise<void> {
    const postmaster = await this.#postmaster();
    if (postmaster !== undefined) await signalAndWait(processTree(postmaster), 'SIGKILL');
  }

  /** Kills only the postmaster. Its children notice and exit. */
  async killPostmaster(): Promise<void> {
    const postmaster = await this.#postmaster();
    if (postmaster === undefined) return;
    const all = processTree(postmaster);
    signal([postmaster], 'SIGKILL');
    await gone(all);
  }

  /** As `pg_ctl stop -m fast`. */
  async stop(): Promise<number | null> {
    await shutDownPostmaster(this.#server);
    return 0;
  }

  /** As `pg_ctl stop -m immediate`: without a checkpoint, so it recovers at the next start. */
  async stopAtOnce(): Promise<void> {
    const postmaster = await this.#postmaster();
    if (postmaster === undefined) return;
    const all = processTree(postmaster);
    signal([postmaster], 'SIGQUIT');
    await gone(all);
  }

  async freeze(): Promise<void> {
    const postmaster = await this.#postmaster();
    if (postmaster !== undefined) signal(processTree(postmaster), 'SIGSTOP');
  }

  async thaw(): Promise<void> {
    const postmaster = await this.#postmaster();
    if (postmaster !== undefined) signal(processTree(postmaster), 'SIGCONT');
  }

  async #postmaster(): Promise<number | undefined> {
    return (await findPostmaster(this.#server.data))?.pid;
  }
}

async function signalAndWait(pids: readonly number[], name: NodeJS.Signals): Promise<void> {
  signal(pids, name);
  await gone(pids);
}

function signal(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // Already exited.
    }
  }
}

const gone = (pids: readonly number[]): Promise<void> => until(() => !pids.some(isThere));
