import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Address } from 'viem';
import { ownFolder, ownSubfolder, readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';
import {
  type AnvilProcess,
  chainSocket,
  findAnvil,
  findBinary,
  launch,
  shutDown,
  whyUnrunnable,
} from './chain/anvil.ts';
import { startBlockClock } from './chain/block-clock.ts';
import { ASSET, CHAIN_ID, type ChainClient, chainClient, MULTICALL } from './chain/chain-client.ts';
import { multicallCode, usdCoinCode } from './chain/contracts/generated.ts';
import { shared } from './chain/persistence.ts';
import { type RpcProxy, startRpcProxy } from './chain/rpc-proxy.ts';
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
  /** With a secret path: whoever knows it may read the chain and send signed transactions. */
  readonly rpcUrl: string;
  /** Of anvil itself, in a private folder: here the chain can be controlled. */
  readonly socketPath: string;
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
    const { port } = options;
    if (port !== undefined && !(await isFree(port))) {
      throw new Error(`Port ${port} for the local chain is taken: free it, or choose another.`);
    }
    const anvil = await attach(directory, binary, state, options);
    const chain = await run(directory, anvil, state, options);
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
  const socketPath = await chainSocket(directory);
  const left = await findAnvil(directory);
  if (left) {
    if (await waitUntil(() => answersAsOurs(socketPath), PATIENCE_MS)) return left;
    await shutDown(directory, left, 0);
  }

  const file = await state.find();
  const started = await launch(
    { binary, directory, stateFile: file, detached: options.detached !== false },
    answersAsOurs,
  );
  if (file) await chainClient(socketPath).mine({ blocks: BLOCKS_AFTER_LOAD });
  else options.onProgress?.('Creating the local chain');
  return started;
}

async function run(
  directory: string,
  anvil: AnvilProcess,
  state: StateFile,
  { port, blockTime = 1 }: ChainOptions,
): Promise<RunningChain> {
  const socketPath = await chainSocket(directory);
  const client = chainClient(socketPath);
  await deployContracts(client);
  const persist = shared(async () => state.write(await client.dumpState()));
  await persist();
  const proxy = await openProxy(directory, socketPath, port);

  const clock = blockTime > 0 ? startBlockClock(client, blockTime, persist) : undefined;
  let stopped: Promise<void> | undefined;
  const stop = async () => {
    await proxy.close();
    await clock?.stop();
    // An anvil that has died by itself has nothing left to save.
    if (await answersAsOurs(socketPath)) await persist();
    await shutDown(directory, anvil, PATIENCE_MS);
  };
  return {
    rpcUrl: proxy.url,
    socketPath,
    chainId: CHAIN_ID,
    asset: ASSET,
    persist,
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
  };
}

/** At the address of the last start, unless another port is asked for or that one is taken. */
async function openProxy(directory: string, socketPath: string, port: number | undefined): Promise<RpcProxy> {
  const file = join(directory, 'rpc-url');
  const formerUrl = await readUnsharedFile(file);
  const formerPort = formerUrl !== undefined && URL.canParse(formerUrl) ? Number(new URL(formerUrl).port) : undefined;
  const proxy = await startRpcProxy({ socketPath, formerUrl, port: port ?? (await freePort(formerPort)) });
  await replaceOwnFile(file, proxy.url);
  return proxy;
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

async function answersAsOurs(socketPath: string): Promise<boolean> {
  return chainClient(socketPath, PATIENCE_MS)
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
