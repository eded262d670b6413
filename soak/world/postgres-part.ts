import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { processTree } from '../../bench/processes.ts';
import { type Account, serverAccount } from '../../src/sandbox/postgres/account.ts';
import { type Binaries, serverBinaries } from '../../src/sandbox/postgres/binaries.ts';
import { type Cluster, openCluster, ROLE } from '../../src/sandbox/postgres/cluster.ts';
import { databaseHome } from '../../src/sandbox/postgres/home.ts';
import { findPostmaster, launch, shutDown } from '../../src/sandbox/postgres/postmaster.ts';
import { connect, ensureDatabase } from '../../src/sandbox/postgres/usage.ts';
import { processExists } from '../../src/sandbox/processes.ts';
import type { Owner } from '../../test/support/child.ts';
import { steadyPort } from '../../test/support/steady-port.ts';
import { until } from '../../test/support/until.ts';
import type { Part } from './world.ts';

const DATABASE = 'speechgate';
const PATIENCE_MS = 60_000;
const KEPT_OUTPUT = 65_536;

interface Place {
  readonly account: Account;
  readonly binaries: Binaries;
  readonly cluster: Cluster;
  readonly logFile: string;
  readonly port: number;
}

/** A PostgreSQL of its own with fsync, whose processes are signalled together. */
export class PostgresPart implements Part {
  readonly name = 'postgres';
  /** Of the database, as a superuser. */
  readonly url: string;
  readonly #place: Place;

  private constructor(place: Place) {
    this.#place = place;
    this.url = `postgres://${ROLE}:${place.cluster.password}@127.0.0.1:${place.port}/${DATABASE}`;
  }

  /** Makes a cluster in a folder, and starts it. */
  static async open(owner: Owner, folder: string): Promise<PostgresPart> {
    const account = await serverAccount();
    const tell = () => {};
    const home = await databaseHome(folder, account, tell);
    const binaries = await serverBinaries(home, account, tell);
    const cluster = await openCluster(home, binaries, account, true, tell);
    const logFile = join(home, 'server.log');
    const part = new PostgresPart({ account, binaries, cluster, logFile, port: await steadyPort() });
    // A kill would leave its shared memory.
    owner.teardown(() => part.stop().finally(() => part.kill()));
    await part.start();
    const client = await connect(cluster, part.#place.port);
    if (!client) throw new Error(`PostgreSQL does not take connections:\n${part.output()}`);
    await ensureDatabase(client, DATABASE).finally(() => client.end());
    return part;
  }

  async start(): Promise<void> {
    const { account, binaries, cluster, logFile, port } = this.#place;
    const options = { postgres: binaries.postgres, data: cluster.data, logFile, port, durable: true };
    // The workers of a server that was killed end a moment after it, and hold its memory until then.
    await until(async () => {
      if (await this.#postmaster()) return this.#accepts();
      const outcome = await launch(options, account);
      if (!outcome.ready && !/is still in use|already exists/.test(outcome.log)) {
        throw new Error(`PostgreSQL did not start: ${outcome.log}`);
      }
      return outcome.ready;
    }, PATIENCE_MS);
  }

  /** All its processes at once, as a power cut ends them. */
  async kill(): Promise<void> {
    const postmaster = await this.#postmaster();
    if (postmaster !== undefined) await signalAndWait(processTree(postmaster), 'SIGKILL');
  }

  /** The postmaster alone: those that it has forked see that and end by themselves. */
  async killPostmaster(): Promise<void> {
    const postmaster = await this.#postmaster();
    if (postmaster === undefined) return;
    const all = processTree(postmaster);
    signal([postmaster], 'SIGKILL');
    await gone(all);
  }

  /** Ends as `pg_ctl stop -m fast` does. */
  async stop(): Promise<number | null> {
    const { account, binaries, cluster } = this.#place;
    await shutDown({ pgCtl: binaries.pgCtl, data: cluster.data }, account, PATIENCE_MS);
    return 0;
  }

  /** Ends as `pg_ctl stop -m immediate` does: without a checkpoint, so that it recovers when it starts. */
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

  output(): string {
    try {
      return readFileSync(this.#place.logFile, 'utf8').slice(-KEPT_OUTPUT);
    } catch {
      return '';
    }
  }

  async #postmaster(): Promise<number | undefined> {
    return (await findPostmaster(this.#place.cluster.data))?.pid;
  }

  async #accepts(): Promise<boolean> {
    const client = await connect(this.#place.cluster, this.#place.port);
    await client?.end();
    return client !== undefined;
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
      // It has ended.
    }
  }
}

const gone = (pids: readonly number[]): Promise<void> => until(() => !pids.some(processExists));
