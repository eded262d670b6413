import { join } from 'node:path';
import type { Hex } from 'viem';
import { ownFolder } from '../../../src/lib/private-files.ts';
import { CHAIN_OPTIONS, findBinary } from '../../../src/sandbox/chain/anvil.ts';
import { CHAIN_ID, type ChainClient, chainClient } from '../../../src/sandbox/chain/chain-client.ts';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { deployContracts, findState, saveState } from '../../../src/sandbox/local-chain.ts';
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
import { type Child, type Owner, startCommand } from '../../../test/support/child.ts';
import { missingProgram } from '../../../test/support/missing-program.ts';
import { rawTransaction, reorganize } from '../../../test/support/reorganize.ts';
import { isThere } from '../../../test/support/several-processes.ts';
import { until } from '../../../test/support/until.ts';
import { processTree } from '../../bench/processes.ts';

/** A process that faults can kill, stop and freeze. */
export interface Part {
  /** SIGKILL. Resolves after the exit. Durable data is on disk by then. */
  kill(): Promise<unknown>;
  /** SIGTERM. Resolves after the exit. */
  stop(): Promise<unknown>;
  /** SIGSTOP. */
  freeze(): Promise<void>;
  /** SIGCONT. */
  thaw(): Promise<void>;
  /** Restarts it with its data and address, unless it runs. Resolves when it accepts requests. */
  start(): Promise<void>;
}

/** Characters of output that are kept. */
const KEPT_OUTPUT = 65_536;
/** The kernel kills the program when this process ends. */
const WITH_PARENT = missingProgram('setpriv', '--version') ? [] : ['setpriv', '--pdeathsig', 'KILL', '--'];

interface ProcessOptions {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Resolves when the program accepts requests. */
  readonly ready: (child: Child) => Promise<unknown>;
}

export class ProcessPart implements Part {
  readonly #owner: Owner;
  readonly #options: ProcessOptions;
  #child: Child | undefined;

  constructor(owner: Owner, options: ProcessOptions) {
    this.#owner = owner;
    this.#options = options;
  }

  get isRunning(): boolean {
    const { exitCode, signalCode } = this.#child?.process ?? { exitCode: 0, signalCode: null };
    return exitCode === null && signalCode === null;
  }

  async start(): Promise<void> {
    if (this.isRunning) return;
    const { command, env, ready } = this.#options;
    this.#child = startCommand(this.#owner, [...WITH_PARENT, ...command], { env, keptOutput: KEPT_OUTPUT });
    await ready(this.#child);
  }

  kill = async (): Promise<unknown> => this.isRunning && this.#child?.stop('SIGKILL');
  stop = async (): Promise<unknown> => this.isRunning && this.#child?.stop();

  async freeze(): Promise<void> {
    if (this.isRunning) this.#child?.process.kill('SIGSTOP');
  }

  async thaw(): Promise<void> {
    if (this.isRunning) this.#child?.process.kill('SIGCONT');
  }
}

/** Interval of blocks without transactions. A transaction gets its own block at once. */
const BLOCK_MS = 500;

/**
 * An anvil. Unlike a real chain it has no durable state, so `kill` first stops mining and saves the state. Later
 * transactions stay out of blocks and are lost.
 */
export class ChainPart implements Part {
  readonly url: string;
  readonly client: ChainClient;
  readonly #owner: Owner;
  readonly #folder: string;
  readonly #command: readonly string[];
  #process: ProcessPart | undefined;
  #isPaused = true;
  #oldest = 0n;
  #mined: Promise<void> | undefined;

  private constructor(owner: Owner, folder: string, binary: string, port: number) {
    this.#owner = owner;
    this.#folder = folder;
    this.#command = [binary, '--port', String(port), ...CHAIN_OPTIONS];
    this.url = `http://127.0.0.1:${port}`;
    this.client = chainClient(this.url);
  }

  /** Starts a new chain with USDC. @throws when anvil is not installed */
  static async open(owner: Owner, folder: string): Promise<ChainPart> {
    const binary = findBinary();
    if (!binary) throw new Error('anvil is not installed: install without --omit=optional.');
    const part = new ChainPart(owner, await ownFolder(join(folder, 'chain')), binary, await freePort());
    const clock = setInterval(() => part.#mine(), BLOCK_MS);
    owner.teardown(() => clearInterval(clock));
    await part.start();
    await deployContracts(part.client);
    return part;
  }

  async start(): Promise<void> {
    if (this.#process?.isRunning) return;
    const state = await findState(this.#folder);
    this.#process = new ProcessPart(this.#owner, {
      command: [...this.#command, ...(state ? ['--load-state', state] : [])],
      env: { HOME: this.#folder },
      ready: (child) =>
        until(async () => {
          if (child.process.exitCode !== null) throw new Error(`anvil did not start: ${child.output()}`);
          return (await this.client.getChainId().catch(() => undefined)) === CHAIN_ID;
        }),
    });
    await this.#process.start();
    this.#oldest = await this.client.getBlockNumber();
    this.#isPaused = false;
  }

  async kill(): Promise<void> {
    if (!this.#process?.isRunning) return;
    await this.#stopMining();
    // A block from before may still be in progress. A caller may learn of it, so it must not be lost.
    let written: bigint | undefined;
    for (let head = await this.client.getBlockNumber(); head !== written; head = await this.client.getBlockNumber()) {
      await saveState(this.#folder, this.client);
      written = head;
    }
    await this.#process.kill();
  }

  stop = (): Promise<void> => this.kill();
  freeze = async (): Promise<void> => this.#process?.freeze();
  thaw = async (): Promise<void> => this.#process?.thaw();

  /**
   * Replaces up to this many of the newest blocks, but only blocks since the last start. The first new block includes
   * all their transactions in order, so the same payments happen in another block.
   */
  async reorganize(wanted: number): Promise<void> {
    await this.#stopMining();
    try {
      let head: bigint;
      let depth: number;
      let raw: Hex[];
      do {
        head = await this.client.getBlockNumber();
        depth = Math.min(wanted, Number(head - this.#oldest));
        if (depth === 0) return;
        const transactions: Hex[] = [];
        for (let number = head - BigInt(depth) + 1n; number <= head; number++) {
          transactions.push(...(await this.client.getBlock({ blockNumber: number })).transactions);
        }
        raw = await Promise.all(transactions.map((hash) => rawTransaction(this.client, hash)));
        // A block from before the stop may still have been in progress.
      } while ((await this.client.getBlockNumber()) !== head);
      await reorganize(this.client, depth, raw);
    } finally {
      await this.client.setAutomine(true);
      this.#isPaused = false;
    }
  }

  /** After it resolves there are no new blocks: transactions wait. */
  async #stopMining(): Promise<void> {
    this.#isPaused = true;
    await this.#mined;
    await this.client.setAutomine(false);
  }

  /** At most one request at a time: a frozen chain would execute all of them when it continues. */
  #mine(): void {
    if (this.#isPaused || this.#mined) return;
    const isOver = () => {
      this.#mined = undefined;
    };
    this.#mined = this.client.mine({ blocks: 1 }).then(isOver, isOver);
  }
}

const DATABASE = 'speechgate';

/** A PostgreSQL server with fsync. Signals reach all its processes. */
export class PostgresPart implements Part {
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
    if ((await this.#processes()).length === 0) await launchPostmaster(this.#server, this.#port, true);
  }

  /** Kills all processes at once, like a power cut. */
  kill = (): Promise<void> => this.#end('SIGKILL', (all) => all);
  /** Kills only the postmaster. Its children notice and exit. */
  killPostmaster = (): Promise<void> => this.#end('SIGKILL', (all) => all.slice(0, 1));
  /** As `pg_ctl stop -m fast`. */
  stop = (): Promise<unknown> => shutDownPostmaster(this.#server);
  /** As `pg_ctl stop -m immediate`: without a checkpoint, so it recovers at the next start. */
  stopAtOnce = (): Promise<void> => this.#end('SIGQUIT', (all) => all.slice(0, 1));
  freeze = async (): Promise<void> => signal(await this.#processes(), 'SIGSTOP');
  thaw = async (): Promise<void> => signal(await this.#processes(), 'SIGCONT');

  /** The postmaster and its children. */
  async #processes(): Promise<number[]> {
    const postmaster = await findPostmaster(this.#server.data);
    return postmaster ? processTree(postmaster.pid) : [];
  }

  async #end(name: NodeJS.Signals, signalled: (all: number[]) => number[]): Promise<void> {
    const all = await this.#processes();
    signal(signalled(all), name);
    await until(() => !all.some(isThere));
  }
}

export function signal(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // Already exited.
    }
  }
}
