import { connect } from 'node:net';
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

/** As on Base, so that a client needs only the node's address. */
export const CHAIN_ID = 8453;
export const ASSET: Address = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
export const MULTICALL: Address = '0xcA11bde05977b3631167028862bE2a173976CA11';

const LINE_FEED = 0x0a;
const POLL_MS = 50;
const REQUEST_TIMEOUT_MS = 30_000;

function localChain(address: string) {
  return defineChain({
    id: CHAIN_ID,
    name: 'Speechgate sandbox',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: { default: { http: [address] } },
    contracts: { multicall3: { address: MULTICALL } },
  });
}

function overSocket(path: string, timeoutMs: number): Transport {
  const request = async (call: { method: string; params?: unknown }) => {
    const body = { jsonrpc: '2.0', id: 1, ...call };
    const { error, result } = JSON.parse(await exchange(path, body, timeoutMs));
    if (error) throw new RpcRequestError({ body, error, url: path });
    return result;
  };
  return custom({ request }, { retryCount: 0 });
}

/** @param address the RPC URL, or the path of the socket, which alone controls the chain */
export function chainClient(address: string, timeout = REQUEST_TIMEOUT_MS) {
  const transport: Transport = /^https?:/.test(address)
    ? http(address, { timeout, retryCount: 0, maxResponseBodySize: false })
    : overSocket(address, timeout);
  return createTestClient({
    mode: 'anvil',
    chain: localChain(address),
    transport,
    pollingInterval: POLL_MS,
    // Otherwise viem returns cached values within the polling interval.
    cacheTime: 0,
  })
    .extend(publicActions)
    .extend(walletActions);
}

export type ChainClient = ReturnType<typeof chainClient>;

/** anvil ends a response with a line feed, and sends none over a half-closed connection. */
export function exchange(socketPath: string, request: unknown, timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    const chunks: Buffer[] = [];
    socket.on('data', (chunk) => {
      chunks.push(chunk);
      if (chunk.at(-1) !== LINE_FEED) return;
      resolve(Buffer.concat(chunks).toString());
      socket.destroy();
    });
    socket.setTimeout(timeoutMs, () =>
      socket.destroy(new Error(`The local chain did not respond within ${timeoutMs} ms. Restart the sandbox.`)),
    );
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('The local chain closed the connection. Restart the sandbox.')));
    socket.write(JSON.stringify(request));
  });
}
