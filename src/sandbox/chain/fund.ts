import type { Address } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { ASSET, type ChainClient } from './chain-client.ts';
import { usdCoinAbi } from './contracts/generated.ts';

const ONE_ETHER = 10n ** 18n;

/**
 * Gives the address money on the local chain: `usdc` in micro-USDC is added to what it has, `ether` in wei replaces
 * it. Returns when it is there.
 */
export async function fund(
  client: ChainClient,
  address: Address,
  { usdc = 0n, ether }: { readonly usdc?: bigint; readonly ether?: bigint },
): Promise<void> {
  if (ether !== undefined) await client.setBalance({ address, value: ether });
  if (usdc === 0n) return;
  // Anybody may mint; a wallet of its own for each call lets calls be made at once. Its ether comes from nowhere.
  const faucet = privateKeyToAccount(generatePrivateKey());
  await client.setBalance({ address: faucet.address, value: ONE_ETHER });
  const hash = await client.writeContract({
    account: faucet,
    address: ASSET,
    abi: usdCoinAbi,
    functionName: 'mint',
    args: [address, usdc],
  });
  await client.waitForTransactionReceipt({ hash });
}

/** What the address owns on the local chain, in micro-USDC. */
export function usdcBalance(client: ChainClient, address: Address): Promise<bigint> {
  return client.readContract({ address: ASSET, abi: usdCoinAbi, functionName: 'balanceOf', args: [address] });
}
