import { type Address, createTestClient, defineChain, http, publicActions, walletActions } from 'viem';

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
function localChain(rpcUrl: string) {
  return defineChain({
    id: CHAIN_ID,
    name: 'Speechgate sandbox',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: { default: { http: [rpcUrl] } },
    contracts: { multicall3: { address: MULTICALL } },
  });
}

/** A client that reads, writes and controls the local chain. */
export function chainClient(rpcUrl: string, timeout = REQUEST_TIMEOUT_MS) {
  return createTestClient({
    mode: 'anvil',
    chain: localChain(rpcUrl),
    // The state of a chain that was used for long is longer than what viem reads of an answer.
    transport: http(rpcUrl, { timeout, retryCount: 0, maxResponseBodySize: false }),
    pollingInterval: POLL_MS,
    // viem would answer from memory within the polling interval.
    cacheTime: 0,
  })
    .extend(publicActions)
    .extend(walletActions);
}

export type ChainClient = ReturnType<typeof chainClient>;
