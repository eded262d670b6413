import { type Address, parseAbi } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { ASSET, type ChainClient } from './chain-client.ts';

export const usdCoinAbi = parseAbi([
  'event Transfer(address indexed from, address indexed to, uint256 value)',
  'event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)',
  'event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)',
  'function name() view returns (string)',
  'function symbol() view returns (string)',
  'function version() view returns (string)',
  'function decimals() view returns (uint8)',
  'function DOMAIN_SEPARATOR() view returns (bytes32)',
  'function totalSupply() view returns (uint256)',
  'function balanceOf(address account) view returns (uint256)',
  'function allowance(address owner, address spender) view returns (uint256)',
  'function authorizationState(address authorizer, bytes32 nonce) view returns (bool)',
  'function mint(address to, uint256 value)',
  'function transfer(address to, uint256 value) returns (bool)',
  'function approve(address spender, uint256 value) returns (bool)',
  'function transferFrom(address from, address to, uint256 value) returns (bool)',
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)',
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
  'function receiveWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)',
  'function receiveWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
  'function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature)',
  'function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
]);

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
