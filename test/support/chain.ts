import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { authorizationTypes } from '@x402/evm';
import { type Address, type Hex, type LocalAccount, parseSignature, type TypedDataDomain } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { ASSET, CHAIN_ID, type ChainClient, chainClient } from '../../src/sandbox/chain/chain-client.ts';
import { fund, usdCoinAbi } from '../../src/sandbox/chain/fund.ts';
import { type RunningChain, startChain } from '../../src/sandbox/local-chain.ts';
import { temporaryFolder } from './temporary-folder.ts';

const ONE_ETHER = 10n ** 18n;

/** The EIP-712 domain that USDC's authorizations are signed for. */
export const USDC_DOMAIN = { name: 'USD Coin', version: '2', chainId: CHAIN_ID, verifyingContract: ASSET } as const;

export interface TestChain extends RunningChain {
  readonly client: ChainClient;
  readonly dataDir: string;
}

/**
 * A chain for the tests of one file, in a directory of its own that goes with it. It mines a block for each transaction
 * at once and no others. Where anvil does not run, `skip` is the reason, else false.
 */
export async function testChain(): Promise<{ readonly skip: string | false; readonly chain: TestChain }> {
  // Whoever imports tap is a test, and ends after a while: programs take other things from here.
  const { t } = await import('tap');
  const dataDir = await temporaryFolder(t);
  const started = await startChain({ dataDir, blockTime: 0, detached: false });
  if (started.available) t.teardown(started.chain.stop);
  // With the reason given as `skip`, no test gets to see the missing chain.
  if (!started.available) return { skip: started.reason, chain: undefined as never };
  return { skip: false, chain: { ...started.chain, client: chainClient(started.chain.socketPath), dataDir } };
}

/** A new wallet with this many micro-USDC, and ether for gas. */
export async function wallet(client: ChainClient, usdc = 0n): Promise<LocalAccount> {
  const account = privateKeyToAccount(generatePrivateKey());
  await fund(client, account.address, { usdc, ether: ONE_ETHER });
  return account;
}

export interface Authorization {
  readonly from: Address;
  readonly to: Address;
  readonly value: bigint;
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly nonce: Hex;
}

export interface SignedAuthorization {
  readonly authorization: Authorization;
  readonly signature: Hex;
}

export const newNonce = (): Hex => `0x${randomBytes(32).toString('hex')}`;

/** An EIP-3009 authorization, valid for an hour except for what is given, signed for USDC or another token's domain. */
export async function signAuthorization(
  signer: LocalAccount,
  terms: { readonly to: Address; readonly value: bigint } & Partial<Authorization>,
  primaryType: 'TransferWithAuthorization' | 'ReceiveWithAuthorization' = 'TransferWithAuthorization',
  domain: TypedDataDomain = USDC_DOMAIN,
): Promise<SignedAuthorization> {
  const authorization: Authorization = {
    from: signer.address,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1000) + 3600),
    nonce: newNonce(),
    ...terms,
  };
  const signature = await signer.signTypedData({
    domain,
    types: {
      TransferWithAuthorization: authorizationTypes.TransferWithAuthorization,
      ReceiveWithAuthorization: authorizationTypes.TransferWithAuthorization,
    },
    primaryType,
    message: authorization,
  });
  return { authorization, signature };
}

/** The first six arguments of transferWithAuthorization and receiveWithAuthorization. */
export function termsOf({ authorization: a }: SignedAuthorization) {
  return [a.from, a.to, a.value, a.validAfter, a.validBefore, a.nonce] as const;
}

/** The last three arguments of the functions that take a signature in parts. */
export function partsOf(signature: Hex) {
  const { r, s, yParity } = parseSignature(signature);
  return [27 + yParity, r, s] as const;
}

/** Presents a signed authorization to USDC, as anybody may, past the facilitator. Resolves when it is sent. */
export function submitAuthorization(
  client: ChainClient,
  sender: LocalAccount,
  signed: SignedAuthorization,
): Promise<Hex> {
  return client.writeContract({
    account: sender,
    address: ASSET,
    abi: usdCoinAbi,
    functionName: 'transferWithAuthorization',
    args: [...termsOf(signed), signed.signature],
  });
}

/** Signs and sends the cancellation of an authorization that may be under way. Resolves when it is sent. */
export async function cancelAuthorization(client: ChainClient, payer: LocalAccount, nonce: Hex): Promise<Hex> {
  const signature = await signCancellation(payer, nonce);
  return client.writeContract({
    account: payer,
    address: ASSET,
    abi: usdCoinAbi,
    functionName: 'cancelAuthorization',
    args: [payer.address, nonce, signature],
  });
}

export function signCancellation(payer: LocalAccount, nonce: Hex): Promise<Hex> {
  return payer.signTypedData({
    domain: USDC_DOMAIN,
    types: {
      CancelAuthorization: [
        { name: 'authorizer', type: 'address' },
        { name: 'nonce', type: 'bytes32' },
      ],
    },
    primaryType: 'CancelAuthorization',
    message: { authorizer: payer.address, nonce },
  });
}

/** Waits until a transaction is in a block, as it is only a moment after it was sent, and tells its hash. */
export async function included(client: ChainClient, sent: Promise<Hex>): Promise<Hex> {
  const hash = await sent;
  const { status } = await client.waitForTransactionReceipt({ hash });
  assert.equal(status, 'success');
  return hash;
}

/** The transactions that have used authorizations of this payer, in the chain's order: each paid once. */
export async function usesOfAuthorizations(client: ChainClient, payer: Address): Promise<Hex[]> {
  const logs = await client.getContractEvents({
    address: ASSET,
    abi: usdCoinAbi,
    eventName: 'AuthorizationUsed',
    args: { authorizer: payer },
    fromBlock: 0n,
  });
  return logs.map((log) => log.transactionHash);
}

/** Runs with transactions left in the pool: none is mined before `client.mine`, or the end of `use`. */
export async function withoutMining<T>(client: ChainClient, use: () => Promise<T>): Promise<T> {
  await client.setAutomine(false);
  try {
    return await use();
  } finally {
    await client.mine({ blocks: 1 });
    await client.setAutomine(true);
  }
}
