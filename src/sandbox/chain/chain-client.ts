import {
  type Address,
  createTestClient,
  custom,
  defineChain,
  http,
  publicActions,
  RpcRequestError,
  type Transport,
  walletActions,
} from 'viem';
import { exchange } from './ipc.ts';

/** Base's, so that a client needs no setting for the sandbox but the node's address. */
export const CHAIN_ID = 8453;
/** Where Base has its USDC. */
export const ASSET: Address = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
/** Where every chain has its Multicall3. */
export const MULTICALL: Address = '0xcA11bde05977b3631167028862bE2a173976CA11';

const POLL_MS = 50;
/** A long chain's state takes a while to write. */
const REQUEST_TIMEOUT_MS = 30_000;

/** The local chain as viem describes one. */
function localChain(address: string) {
  return defineChain({
    id: CHAIN_ID,
    name: 'Speechgate sandbox',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: { default: { http: [address] } },
    contracts: { multicall3: { address: MULTICALL } },
  });
}

/** Takes every method, and answers of any length. */
function overSocket(path: string, timeoutMs: number): Transport {
  const request = async (call: { method: string; params?: unknown }) => {
    const body = { jsonrpc: '2.0', id: 1, ...call };
    const { error, result } = JSON.parse(await exchange(path, body, timeoutMs));
    if (error) throw new RpcRequestError({ body, error, url: path });
    return result;
  };
  return custom({ request }, { retryCount: 0 });
}

/**
 * A client of the local chain.
 * @param address its RPC URL, or the path of its socket: the chain is controlled by its socket only
 */
export function chainClient(address: string, timeout = REQUEST_TIMEOUT_MS) {
  const transport: Transport = /^https?:/.test(address)
    ? http(address, { timeout, retryCount: 0, maxResponseBodySize: false })
    : overSocket(address, timeout);
  return createTestClient({
    mode: 'anvil',
    chain: localChain(address),
    transport,
    pollingInterval: POLL_MS,
    // viem would answer from memory within the polling interval.
    cacheTime: 0,
  })
    .extend(publicActions)
    .extend(walletActions);
}

export type ChainClient = ReturnType<typeof chainClient>;
