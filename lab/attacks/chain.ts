import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Address, encodeAbiParameters, type Hex, keccak256, type LocalAccount, pad, toHex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { ASSET, type ChainClient, chainClient } from '../../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi } from '../../../src/sandbox/chain/fund.ts';
import { startChain } from '../../../src/sandbox/local-chain.ts';

const BLOCK_MS = 1_000;
/** Storage slot of `balanceOf` in contracts/UsdCoin.sol. */
const BALANCES_SLOT = 1n;
const ONE_ETHER = 10n ** 18n;
/** Initial balance of a wallet in micro-USDC. */
const FUNDS = 10_000_000n;

export interface Chain {
  readonly rpcUrl: string;
  readonly chainId: number;
  readonly client: ChainClient;
  /** A new wallet with ten USDC, and ether for gas. */
  wallet(): Promise<LocalAccount>;
  /** Transfers to the payee since a block, in micro-USDC. */
  paidTo(payee: Address, fromBlock: bigint): Promise<readonly Payment[]>;
  stop(): Promise<void>;
}

export interface Payment {
  readonly payer: Address;
  readonly value: bigint;
}

/** A local chain that mines each transaction at once, plus one block a second. @throws when no chain can run */
export async function startFundedChain(): Promise<Chain> {
  const dataDir = await mkdtemp(join(tmpdir(), 'speechgate-attacks-chain-'));
  const started = await startChain({ dataDir, blockTime: 0, detached: false });
  if (!started.available) throw new Error(started.reason);
  const { chain } = started;
  const client = chainClient(chain.socketPath);
  const clock = setInterval(() => void client.mine({ blocks: 1 }).catch(() => undefined), BLOCK_MS);
  return {
    rpcUrl: chain.rpcUrl,
    chainId: chain.chainId,
    client,
    wallet: async () => {
      const account = privateKeyToAccount(generatePrivateKey());
      await Promise.all([setUsdc(client, account.address, FUNDS), client.setBalance({ ...account, value: ONE_ETHER })]);
      return account;
    },
    paidTo: (payee, fromBlock) => transfers(client, payee, fromBlock),
    stop: async () => {
      clearInterval(clock);
      await chain.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** Writes the contract's storage: a mint for each of thousands of wallets would be a transaction each. */
function setUsdc(client: ChainClient, owner: Address, value: bigint): Promise<unknown> {
  const index = keccak256(encodeAbiParameters([{ type: 'address' }, { type: 'uint256' }], [owner, BALANCES_SLOT]));
  return client.setStorageAt({ address: ASSET, index, value: pad(toHex(value)) as Hex });
}

async function transfers(client: ChainClient, payee: Address, fromBlock: bigint): Promise<readonly Payment[]> {
  const logs = await client.getContractEvents({
    ...{ address: ASSET, abi: usdCoinAbi, eventName: 'Transfer', args: { to: payee }, fromBlock },
  });
  return logs
    .map(({ args }) => args as { from: Address; value: bigint })
    .map(({ from, value }) => ({ payer: from, value }));
}

/** Moves the wallet's balance away, except `keeps` micro-USDC. */
export async function drain(client: ChainClient, wallet: LocalAccount, keeps = 0n): Promise<void> {
  const address = ASSET;
  const balance = await client.readContract({
    address,
    abi: usdCoinAbi,
    functionName: 'balanceOf',
    args: [wallet.address],
  });
  const hash = await client.writeContract({
    ...{ account: wallet, address, abi: usdCoinAbi, functionName: 'transfer' },
    args: ['0x000000000000000000000000000000000000dEaD', balance - keeps],
  });
  await client.waitForTransactionReceipt({ hash });
}
