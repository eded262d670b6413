import type { Hex } from 'viem';
import type { ChainClient } from '../../src/sandbox/chain/chain-client.ts';

/**
 * Replaces the last `depth` blocks by as many new ones. The given raw transactions are in the first of them; others are
 * gone, not pending. Reaches only blocks that were mined since the chain's last start.
 */
export async function reorganize(client: ChainClient, depth: number, transactions: Hex[] = []): Promise<void> {
  await client.request<{ Method: 'anvil_reorg'; Parameters: [number, [Hex, number][]]; ReturnType: null }>({
    method: 'anvil_reorg',
    params: [depth, transactions.map((raw) => [raw, 0])],
  });
}

/** A transaction as it was sent, to send it again after a reorganisation. */
export function rawTransaction(client: ChainClient, hash: Hex): Promise<Hex> {
  return client.request<{ Method: 'eth_getRawTransactionByHash'; Parameters: [Hex]; ReturnType: Hex }>({
    method: 'eth_getRawTransactionByHash',
    params: [hash],
  });
}
