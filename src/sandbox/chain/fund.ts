import type { Address } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { ASSET, type ChainClient } from './chain-client.ts';
import { usdCoinAbi } from './usdc-abi.ts';

const ONE_ETHER = 10n ** 18n;

/** `usdc` is added, in micro-USDC. `ether` replaces the balance, in wei. */
export async function fund(
  client: ChainClient,
  address: Address,
  { usdc = 0n, ether }: { readonly usdc?: bigint; readonly ether?: bigint },
): Promise<void> {
  if (ether !== undefined) await client.setBalance({ address, value: ether });
  if (usdc === 0n) return;
  // Anybody may mint. A new wallet for each call allows concurrent calls.
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

export function usdcBalance(client: ChainClient, address: Address): Promise<bigint> {
  return client.readContract({ address: ASSET, abi: usdCoinAbi, functionName: 'balanceOf', args: [address] });
}
