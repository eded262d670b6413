import { join } from 'node:path';
import type { Hex } from 'viem';
import { ownFolder } from '../../src/lib/private-files.ts';
import { CHAIN_OPTIONS, findBinary } from '../../src/sandbox/chain/anvil.ts';
import { CHAIN_ID, type ChainClient, chainClient } from '../../src/sandbox/chain/chain-client.ts';
import { stateFile } from '../../src/sandbox/chain/state-file.ts';
import { deployContracts } from '../../src/sandbox/local-chain.ts';
import type { Owner } from '../../test/support/child.ts';
import { rawTransaction, reorganize } from '../../test/support/reorganize.ts';
import { steadyPort } from '../../test/support/steady-port.ts';
import { until } from '../../test/support/until.ts';
import { ProcessPart } from './process-part.ts';
import type { Part } from './world.ts';

/** Between blocks without a transaction; there is one for each transaction at once besides. */
const BLOCK_MS = 500;

/**
 * An anvil. It has no durable state, which chains have: before it is killed no more blocks are made, and what it knows is
 * written down. Transactions that come later than that stay out of blocks, and are forgotten.
 */
export class ChainPart implements Part {
  readonly name = 'chain';
  readonly url: string;
  readonly client: ChainClient;
  readonly #owner: Owner;
  readonly #folder: string;
  readonly #binary: string;
  readonly #port: number;
  #process: ProcessPart | undefined;
  #isPaused = true;
  /** The newest block when it was started. */
  #oldest = 0n;
  /** The block that is being made; undefined where none is. */
  #mined: Promise<void> | undefined;

  private constructor(owner: Owner, folder: string, binary: string, port: number) {
    this.#owner = owner;
    this.#folder = folder;
    this.#binary = binary;
    this.#port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.client = chainClient(this.url);
  }

  /** Starts a new chain that has USDC on it. Throws where no anvil runs. */
  static async open(owner: Owner, folder: string): Promise<ChainPart> {
    const binary = findBinary();
    if (!binary) throw new Error('anvil is not installed: install without --omit=optional.');
    const part = new ChainPart(owner, await ownFolder(join(folder, 'chain')), binary, await steadyPort());
    const clock = setInterval(() => part.#mine(), BLOCK_MS);
    owner.teardown(() => clearInterval(clock));
    await part.start();
    await deployContracts(part.client);
    return part;
  }

  async start(): Promise<void> {
    if (this.#process?.isRunning) return;
    const state = await this.#state().find();
    const own = ['--port', String(this.#port), ...(state ? ['--load-state', state] : [])];
    this.#process = new ProcessPart({
      name: this.name,
      owner: this.#owner,
      command: [this.#binary, ...own, ...CHAIN_OPTIONS],
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
    // On a busy machine a block may still be under way that was begun before: it may be told, and must not be lost.
    let written: bigint | undefined;
    for (let head = await this.client.getBlockNumber(); head !== written; head = await this.client.getBlockNumber()) {
      await this.#state().write(await this.client.dumpState());
      written = head;
    }
    await this.#process.kill();
  }

  /**
   * Replaces the newest blocks by as many new ones at most, of which the first has all their transactions, in their order: money
   * that had moved moves again, in another block. Reaches only blocks that were made since the last start.
   */
  async reorganize(wanted: number): Promise<void> {
    await this.#stopMining();
    try {
      const head = await this.client.getBlockNumber();
      const depth = Math.min(wanted, Number(head - this.#oldest));
      if (depth === 0) return;
      const transactions: Hex[] = [];
      for (let number = head - BigInt(depth) + 1n; number <= head; number++) {
        transactions.push(...(await this.client.getBlock({ blockNumber: number })).transactions);
      }
      const raw = await Promise.all(transactions.map((hash) => rawTransaction(this.client, hash)));
      await reorganize(this.client, depth, raw);
    } finally {
      await this.client.setAutomine(true);
      this.#isPaused = false;
    }
  }

  /** Of the blocks from now on. @param seconds by which they are ahead of the machine's clock */
  async stepClock(seconds: number): Promise<void> {
    const time = Math.floor(Date.now() / 1000) + seconds;
    await this.client.request<{ Method: 'evm_setTime'; Parameters: [number]; ReturnType: unknown }>({
      method: 'evm_setTime',
      params: [time],
    });
  }

  async stop(): Promise<number | null> {
    await this.kill();
    return null;
  }

  freeze = async (): Promise<void> => this.#process?.freeze();
  thaw = async (): Promise<void> => this.#process?.thaw();
  output = (): string => this.#process?.output() ?? '';

  /** No block is made from when it resolves, until blocks are made again: transactions wait. */
  async #stopMining(): Promise<void> {
    this.#isPaused = true;
    await this.#mined;
    await this.client.setAutomine(false);
  }

  /** One at a time: a frozen chain would make them all when it goes on. */
  #mine(): void {
    if (this.#isPaused || this.#mined) return;
    const isOver = () => {
      this.#mined = undefined;
    };
    this.#mined = this.client.mine({ blocks: 1 }).then(isOver, isOver);
  }

  #state = () => stateFile(this.#folder, () => {});
}
