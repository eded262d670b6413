import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { Address } from 'viem';
import { closeOnFailure } from '../lib/close-on-failure.ts';
import { ownFolder, ownSubfolder, readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';
import { CONFIRMATIONS } from '../payments/x402/transfer-proof.ts';
import { chainSocket, findAnvil, findBinary, killAnvil, launchAnvil, whyUnrunnable } from './chain/anvil.ts';
import { ASSET, CHAIN_ID, type ChainClient, chainClient, MULTICALL } from './chain/chain-client.ts';
import { multicallCode, usdCoinCode } from './chain/contracts/generated.ts';
import { startRpcProxy } from './chain/rpc-proxy.ts';
import { freePort } from './free-port.ts';

export interface ChainOptions {
  readonly dataDir: string;
  /** Seconds between blocks while confirmations are missing. With 0 only transactions make blocks. */
  readonly blockTime?: number;
  readonly onProgress?: (message: string) => void;
  /** False for tests, which may be killed and must leave no process. */
  readonly detached?: boolean;
}

export interface RunningChain {
  readonly rpcUrl: string;
  readonly socketPath: string;
  readonly chainId: number;
  readonly asset: Address;
  readonly pid: number;
  /** Call this before you report an included transaction, because a crash must not lose what a database knows. */
  persist(): Promise<void>;
  stop(): Promise<void>;
}

const ANSWER_TIMEOUT_MS = 4_000;
const BLOCKS_ON_TOP = BigInt(CONFIRMATIONS) + 1n;
const IDLE_SECONDS = 15;
/** Skips the numbers of blocks that were seen but not saved. A search from such a number would miss new blocks. */
const BLOCKS_AFTER_LOAD = 32;

/** The state survives a stop, and a kill as of the last `persist`. @throws if anvil can run here but does not start */
export async function startChain(
  options: ChainOptions,
): Promise<
  { readonly available: true; readonly chain: RunningChain } | { readonly available: false; readonly reason: string }
> {
  const binary = findBinary();
  if (!binary) {
    const platform = `${process.platform}-${process.arch}`;
    const reason =
      `anvil, which runs the local chain, is not installed (${platform}). It is an optional npm package for Linux and macOS ` +
      '(x64, arm64) and Windows (x64): install without --omit=optional.';
    return { available: false, reason };
  }
  const obstacle = await whyUnrunnable(binary);
  if (obstacle) {
    return { available: false, reason: `anvil, which runs the local chain, can't run on this machine (${obstacle}).` };
  }
  await ownFolder(options.dataDir);
  const directory = await ownSubfolder(join(options.dataDir, 'chain'));
  const socketPath = await chainSocket(directory);
  await endFormer(directory, socketPath);

  const stateFile = await findState(directory);
  if (!stateFile) options.onProgress?.('Creating the local chain');
  const launch = { binary, directory, stateFile, detached: options.detached !== false };
  const pid = await launchAnvil(launch, () => answers(socketPath));
  const kill = () => killAnvil(pid, directory);
  const client = chainClient(socketPath);
  let saved: Promise<void> = Promise.resolve();
  const persist = () => {
    const save = () => saveState(directory, client);
    saved = saved.then(save, save);
    return saved;
  };
  const proxy = await closeOnFailure({ close: kill }, async () => {
    if (stateFile) await client.mine({ blocks: BLOCKS_AFTER_LOAD });
    await deployContracts(client);
    await persist();
    return openProxy(directory, socketPath);
  });
  const { blockTime = 1 } = options;
  const clock = blockTime > 0 ? startBlockClock(client, blockTime, persist) : undefined;
  let stopped: Promise<void> | undefined;
  const close = async () => {
    await proxy.close();
    await clock?.stop();
    // An anvil that has exited has nothing left to save.
    if (await answers(socketPath)) await persist();
    await kill();
  };
  const stop = () => {
    stopped ??= close();
    return stopped;
  };
  const { url: rpcUrl } = proxy;
  return { available: true, chain: { rpcUrl, socketPath, chainId: CHAIN_ID, asset: ASSET, pid, persist, stop } };
}

async function endFormer(directory: string, socketPath: string): Promise<void> {
  const pid = await findAnvil(directory);
  if (pid === undefined) return;
  if (await answers(socketPath)) await saveState(directory, chainClient(socketPath));
  await killAnvil(pid, directory);
}

async function openProxy(directory: string, socketPath: string) {
  const file = join(directory, 'rpc-url');
  const formerUrl = await readUnsharedFile(file);
  const formerPort = formerUrl !== undefined && URL.canParse(formerUrl) ? Number(new URL(formerUrl).port) : undefined;
  const proxy = await startRpcProxy(socketPath, await freePort(formerPort), formerUrl);
  await replaceOwnFile(file, proxy.url);
  return proxy;
}

const stateFileOf = (directory: string) => join(directory, 'state.json');

/** anvil could save its state itself, but in place and at intervals: a kill would damage it or lose transactions. */
export async function findState(directory: string): Promise<string | undefined> {
  const file = stateFileOf(directory);
  const text = await readUnsharedFile(file);
  if (text === undefined) return undefined;
  try {
    if ('accounts' in JSON.parse(text)) return file;
  } catch {}
  throw new Error(`The state of the local chain, ${file}, is damaged. Remove it to start with an empty chain.`);
}

export async function saveState(directory: string, client: ChainClient): Promise<void> {
  // The dump is gzipped JSON in hexadecimal.
  const dump = await client.dumpState();
  await replaceOwnFile(stateFileOf(directory), await promisify(gunzip)(Buffer.from(dump.slice(2), 'hex')));
}

export async function deployContracts(client: ChainClient): Promise<void> {
  for (const [address, bytecode] of [
    [ASSET, usdCoinCode],
    [MULTICALL, multicallCode],
  ] as const) {
    if (!(await client.getCode({ address }))) await client.setCode({ address, bytecode });
  }
}

function answers(socketPath: string): Promise<boolean> {
  return chainClient(socketPath, ANSWER_TIMEOUT_MS)
    .getChainId()
    .then(
      (id) => id === CHAIN_ID,
      () => false,
    );
}

/**
 * Mines an empty block every `blockTime` seconds until the newest other block is confirmed, then only every 15 s.
 * @param onBlocks called after new blocks, also those of transactions
 */
function startBlockClock(
  client: ChainClient,
  blockTime: number,
  onBlocks: () => Promise<void>,
): { stop(): Promise<void> } {
  let confirmedAt = 0n;
  let seen: bigint | undefined;
  const tick = async () => {
    const head = await client.getBlock();
    const active = head.number !== seen;
    if (active) confirmedAt = head.number + BLOCKS_ON_TOP;
    const age = Math.floor(Date.now() / 1000) - Number(head.timestamp);
    const due = age >= (head.number < confirmedAt ? blockTime : IDLE_SECONDS);
    if (due) await client.mine({ blocks: 1 });
    seen = head.number + (due ? 1n : 0n);
    if (active || due) await onBlocks();
  };

  let running: Promise<void> | undefined;
  const timer = setInterval(() => {
    // The chain is gone or overloaded. Its next user gets the error.
    running ??= tick()
      .catch(() => undefined)
      .finally(() => {
        running = undefined;
      });
  }, blockTime * 1000);
  timer.unref();
  return {
    async stop() {
      clearInterval(timer);
      await running;
    },
  };
}
