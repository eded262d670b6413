import type { Address, LocalAccount } from 'viem';
import { ASSET, type ChainClient } from '../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi, usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { included } from '../../test/support/chain.ts';

export interface Payment {
  readonly payer: Address;
  readonly value: bigint;
}

/** Transfers to the payee since a block, in micro-USDC. */
export async function paidTo(client: ChainClient, payee: Address, fromBlock: bigint): Promise<readonly Payment[]> {
  const logs = await client.getContractEvents({
    ...{ address: ASSET, abi: usdCoinAbi, eventName: 'Transfer', args: { to: payee }, fromBlock },
  });
  return logs.map(({ args }) => ({ payer: args.from as Address, value: args.value as bigint }));
}

/** Moves the wallet's balance away, except `keeps` micro-USDC. */
export async function drain(client: ChainClient, wallet: LocalAccount, keeps = 0n): Promise<void> {
  const balance = await usdcBalance(client, wallet.address);
  const sent = client.writeContract({
    ...{ account: wallet, address: ASSET, abi: usdCoinAbi, functionName: 'transfer' },
    args: ['0x000000000000000000000000000000000000dEaD', balance - keeps],
  });
  await included(client, sent);
}
