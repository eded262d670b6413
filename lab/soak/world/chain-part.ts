import { join } from 'node:path';
import type { Hex } from 'viem';
import { ownFolder } from '../../../src/lib/private-files.ts';
import { CHAIN_OPTIONS, findBinary } from '../../../src/sandbox/chain/anvil.ts';
import { CHAIN_ID, type ChainClient, chainClient } from '../../../src/sandbox/chain/chain-client.ts';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { deployContracts, findState, saveState } from '../../../src/sandbox/local-chain.ts';
import type { Owner } from '../../../test/support/child.ts';
import { rawTransaction, reorganize } from '../../../test/support/reorganize.ts';
import { until } from '../../../test/support/until.ts';
import { ProcessPart } from './process-part.ts';
import type { Part } from './world.ts';

/** Interval of blocks without transactions. A transaction gets its own block at once. */
const BLOCK_MS = 500;

/**
 * An anvil. Unlike a real chain it has no durable state, so `kill` first stops mining and saves the state. Later
 * transactions stay out of blocks and are lost.
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
  #oldest = 0n;
  #mined: Promise<void> | undefined;

  private constructor(owner: Owner, folder: string, binary: string, port: number) {
    this.#owner = owner;
    this.#folder = folder;
    this.#binary = binary;
    this.#port = port;
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
    // A block from before may still be in progress. A caller may learn of it, so it must not be lost.
    let written: bigint | undefined;
    for (let head = await this.client.getBlockNumber(); head !== written; head = await this.client.getBlockNumber()) {
      await saveState(this.#folder, this.client);
      written = head;
    }
    await this.#process.kill();
  }

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

  async stop(): Promise<number | null> {
    await this.kill();
    return null;
  }

  freeze = async (): Promise<void> => this.#process?.freeze();
  thaw = async (): Promise<void> => this.#process?.thaw();

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
