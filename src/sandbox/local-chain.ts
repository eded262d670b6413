import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Address } from 'viem';
import { ownFolder, ownSubfolder, replaceOwnFile } from '../lib/private-files.ts';
import { type AnvilProcess, findAnvil, findBinary, launch, shutDown, whyUnrunnable } from './chain/anvil.ts';
import { startBlockClock } from './chain/block-clock.ts';
import { ASSET, CHAIN_ID, type ChainClient, chainClient, MULTICALL } from './chain/chain-client.ts';
import { multicallCode, usdCoinCode } from './chain/contracts/generated.ts';
import { shared } from './chain/persistence.ts';
import { type StateFile, stateFile } from './chain/state-file.ts';
import { freePort, isFree } from './free-port.ts';
import { lockDirectory } from './lock.ts';

export interface ChainOptions {
  /** The chain lives in its subdirectory `chain`. */
  readonly dataDir: string;
  /** Port on 127.0.0.1; by default the former one, or any that is free. */
  readonly port?: number;
  /** Seconds between blocks while transactions wait for confirmations; 0: a block for each transaction and no others. */
  readonly blockTime?: number;
  readonly onProgress?: (message: string) => void;
  /** False: a signal to this process's group ends the chain too. For tests, which may be killed and leave nothing. */
  readonly detached?: boolean;
}

export interface RunningChain {
  readonly rpcUrl: string;
  readonly chainId: number;
  /** The address of USDC. */
  readonly asset: Address;
  /**
   * Returns when what the chain knows now is on the disk. Whoever tells somebody that a transaction was included calls
   * this first: else a database could remember a payment that the chain has forgotten after a crash.
   */
  persist(): Promise<void>;
  /** Persists and ends the chain. */
  stop(): Promise<void>;
}

export type ChainStart =
  | { readonly available: true; readonly chain: RunningChain }
  | { readonly available: false; readonly reason: string };

/** An anvil that answers nothing for this long, or doesn't end for this long, is taken for broken. */
const PATIENCE_MS = 4000;
const POLL_MS = 20;
/**
 * Empty blocks after a restart from disk. Blocks that somebody has seen, but that came too late to be saved, would else
 * be followed by other ones with the same numbers, where a search that begins at the head it knows does not look.
 */
const BLOCKS_AFTER_LOAD = 32;

/**
 * Starts the sandbox's chain, an anvil with USDC on it. Its state survives a stop, and a kill as of the last `persist`,
 * which happens by itself about every `blockTime` seconds when there are new blocks. A chain that a killed process left
 * behind is used on. One process at a time uses a directory. Where no anvil runs, the result says why; throws when it
 * should run and does not.
 */
export async function startChain(options: ChainOptions): Promise<ChainStart> {
  const binary = findBinary();
  if (!binary) {
    const platform = `${process.platform}-${process.arch}`;
    return {
      available: false,
      reason:
        `The local chain is not available on this platform (${platform}): anvil is an optional npm package for Linux and ` +
        'macOS (x64, arm64) and Windows (x64). Install without --omit=optional.',
    };
  }
  const obstacle = await whyUnrunnable(binary);
  if (obstacle)
    return { available: false, reason: `The local chain is not available: this system can't run anvil (${obstacle}).` };
  const directory = await chainDirectory(options.dataDir);
  const lock = await lockDirectory(directory);
  if (!lock) throw new Error(`Another process uses the local chain of ${options.dataDir}: stop it first.`);
  try {
    const state = stateFile(directory, options.onProgress ?? (() => undefined));
    const anvil = await attach(directory, binary, state, options);
    const chain = await run(directory, anvil, state, options.blockTime ?? 1);
    return {
      available: true,
      chain: {
        ...chain,
        async stop() {
          await chain.stop();
          await lock.release();
        },
      },
    };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

async function chainDirectory(dataDir: string): Promise<string> {
  await ownFolder(dataDir);
  return ownSubfolder(join(dataDir, 'chain'));
}

/** Joins the anvil that runs on the directory, or starts one from the state on disk. */
async function attach(
  directory: string,
  binary: string,
  state: StateFile,
  options: ChainOptions,
): Promise<AnvilProcess> {
  const left = await findAnvil(directory);
  if (left) {
    const answers = await waitUntil(() => answersAsOurs(left.port), PATIENCE_MS);
    if (answers && (options.port === undefined || options.port === left.port)) return left;
    if (answers) await state.write(await chainClient(url(left.port)).dumpState());
    await shutDown(directory, left, answers ? PATIENCE_MS : 0);
  }

  const file = await state.find();
  const port = options.port ?? (await freePort(await formerPort(directory)));
  if (!(await isFree(port))) throw new Error(`Port ${port} for the local chain is taken: free it, or choose another.`);
  const started = await launch(
    { binary, directory, port, stateFile: file, detached: options.detached !== false },
    answersAsOurs,
  );
  if (file) await chainClient(url(port)).mine({ blocks: BLOCKS_AFTER_LOAD });
  else options.onProgress?.('Creating the local chain');
  return started;
}

async function run(directory: string, anvil: AnvilProcess, state: StateFile, blockTime: number): Promise<RunningChain> {
  const rpcUrl = url(anvil.port);
  const client = chainClient(rpcUrl);
  await deployContracts(client);
  const persist = shared(async () => state.write(await client.dumpState()));
  await persist();
  await replaceOwnFile(join(directory, 'port'), String(anvil.port));

  const clock = blockTime > 0 ? startBlockClock(client, blockTime, persist) : undefined;
  let stopped: Promise<void> | undefined;
  const stop = async () => {
    await clock?.stop();
    // An anvil that has died by itself has nothing left to save.
    if (await answersAsOurs(anvil.port)) await persist();
    await shutDown(directory, anvil, PATIENCE_MS);
  };
  return {
    rpcUrl,
    chainId: CHAIN_ID,
    asset: ASSET,
    persist,
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
  };
}

/** Puts the contracts to their addresses, unless they are there from an earlier start. */
export async function deployContracts(client: ChainClient): Promise<void> {
  for (const [address, bytecode] of [
    [ASSET, usdCoinCode],
    [MULTICALL, multicallCode],
  ] as const) {
    if (!(await client.getCode({ address }))) await client.setCode({ address, bytecode });
  }
}

const url = (port: number) => `http://127.0.0.1:${port}`;

async function answersAsOurs(port: number): Promise<boolean> {
  return chainClient(url(port), PATIENCE_MS)
    .getChainId()
    .then(
      (id) => id === CHAIN_ID,
      () => false,
    );
}

async function waitUntil(condition: () => Promise<boolean>, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadline) return false;
    await sleep(POLL_MS);
  }
  return true;
}

async function formerPort(directory: string): Promise<number | undefined> {
  return Number(await readFile(join(directory, 'port'), 'utf8').catch(() => '')) || undefined;
}
