import assert from 'node:assert/strict';
import type { Test } from 'tap';
import type { Address } from 'viem';
import { findBinary } from '../../src/sandbox/chain/anvil.ts';
import { type ChainClient, chainClient } from '../../src/sandbox/chain/chain-client.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { type ChainOptions, startChain } from '../../src/sandbox/local-chain.ts';

export const skip = findBinary() === undefined ? 'anvil is not installed' : false;
export const SOMEBODY: Address = '0x00000000000000000000000000000000000a11ce';

/** Mines for transactions only, unless told otherwise, and stops with the test at the latest. */
export async function start(t: Test, options: ChainOptions) {
  const started = await startChain({ blockTime: 0, ...options });
  assert.ok(started.available);
  t.teardown(started.chain.stop);
  return { ...started.chain, client: chainClient(started.chain.socketPath) };
}

/** Its anvil is killed as by the system's lack of memory, and the chain is given up. */
export async function kill(chain: { readonly pid: number; stop(): Promise<void> }): Promise<void> {
  process.kill(chain.pid, 'SIGKILL');
  await chain.stop();
}

export const balance = (client: ChainClient) => usdcBalance(client, SOMEBODY);
