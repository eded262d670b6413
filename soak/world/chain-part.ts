import { join } from 'node:path';
import { ownFolder } from '../../src/lib/private-files.ts';
import { findBinary } from '../../src/sandbox/chain/anvil.ts';
import { CHAIN_ID, type ChainClient, chainClient } from '../../src/sandbox/chain/chain-client.ts';
import { stateFile } from '../../src/sandbox/chain/state-file.ts';
import { deployContracts } from '../../src/sandbox/local-chain.ts';
import type { Owner } from '../../test/support/child.ts';
import { steadyPort } from '../../test/support/steady-port.ts';
import { until } from '../../test/support/until.ts';
import { ProcessPart } from './process-part.ts';
import type { Part } from './world.ts';

/**
 * A block for each transaction at once, and one each second besides; two on top of one finalize it.
 */
const MINING = ['--block-time', '1', '--mixed-mining', '--slots-in-an-epoch', '1'];

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
    await part.start();
    await deployContracts(part.client);
    return part;
  }

  async start(): Promise<void> {
    if (this.#process?.isRunning) return;
    const state = await this.#state().find();
    const network = ['--host', '127.0.0.1', '--port', String(this.#port), '--no-cors', '--chain-id', String(CHAIN_ID)];
    const files = ['--cache-path', join(this.#folder, 'cache'), ...(state ? ['--load-state', state] : [])];
    this.#process = new ProcessPart({
      name: this.name,
      owner: this.#owner,
      command: [this.#binary, ...network, ...MINING, ...files, '--accounts', '0', '--quiet'],
      env: { HOME: this.#folder },
      ready: ({ process: { exitCode }, output }) =>
        until(async () => {
          if (exitCode !== null) throw new Error(`anvil did not start: ${output()}`);
          return (await this.client.getChainId().catch(() => undefined)) === CHAIN_ID;
        }),
    });
    await this.#process.start();
  }

  async kill(): Promise<void> {
    if (!this.#process?.isRunning) return;
    await this.client.setIntervalMining({ interval: 0 });
    await this.#state().write(await this.client.dumpState());
    await this.#process.kill();
  }

  async stop(): Promise<number | null> {
    await this.kill();
    return null;
  }

  freeze = async (): Promise<void> => this.#process?.freeze();
  thaw = async (): Promise<void> => this.#process?.thaw();
  output = (): string => this.#process?.output() ?? '';

  #state = () => stateFile(this.#folder, () => {});
}
