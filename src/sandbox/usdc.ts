import { join } from 'node:path';
import { privateKeyToAccount } from 'viem/accounts';
import { parseSigningKeys, pinnedKeys, rotateKeys } from '../config/signing-keys.ts';
import { closeOnFailure } from '../lib/close-on-failure.ts';
import { createOwnFile, readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';
import { chainClient } from './chain/chain-client.ts';
import { fund, usdcBalance } from './chain/fund.ts';
import { type RunningChain, startChain } from './local-chain.ts';
import { startFacilitator } from './local-facilitator.ts';
import type { SandboxFile } from './sandbox-file.ts';
import type { SandboxKeys } from './sandbox-keys.ts';

const MIN_WALLET_MICRO_USDC = 5_000_000n;
const WALLET_MICRO_USDC = 20_000_000n;
const GAS_WEI = 100n * 10n ** 18n;

interface UsdcParts extends Pick<SandboxFile, 'chain' | 'facilitatorUrl' | 'wallet'> {
  readonly env: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

/** Starts chain, facilitator and a funded wallet. Without a chain it reports why, and returns none of them. */
export async function startUsdc(
  dataDir: string,
  keys: SandboxKeys,
  onProgress: (message: string) => void,
): Promise<UsdcParts> {
  const started = await startChain({ dataDir, onProgress });
  if (!started.available) {
    onProgress(`Payment in USDC is off in this sandbox: ${started.reason}`);
    return { env: {}, chain: null, facilitatorUrl: null, wallet: null, close: async () => {} };
  }
  const { chain } = started;
  return closeOnFailure({ close: () => chain.stop() }, () => openUsdc(dataDir, keys, chain));
}

async function openUsdc(dataDir: string, keys: SandboxKeys, chain: RunningChain): Promise<UsdcParts> {
  const wallet = await fundedWallet(chain, keys);
  const facilitator = await startFacilitator({
    rpcUrl: chain.rpcUrl,
    chainId: chain.chainId,
    privateKey: keys.facilitatorKey,
    persist: () => chain.persist(),
  });
  return {
    env: {
      X402_PAY_TO: privateKeyToAccount(keys.payeeKey).address,
      X402_FACILITATOR_URL: facilitator.url,
      X402_RPC_URL: chain.rpcUrl,
      X402_ASSET: chain.asset,
      QUOTE_SECRET: keys.quoteSecret,
      SIGNING_KEYS_FILE: await signingKeysFile(dataDir),
    },
    chain: { rpcUrl: chain.rpcUrl, chainId: chain.chainId, asset: chain.asset },
    facilitatorUrl: facilitator.url,
    wallet,
    close: async () => {
      await facilitator.close();
      await chain.stop();
    },
  };
}

async function fundedWallet(chain: RunningChain, { walletKey, facilitatorKey }: SandboxKeys) {
  const client = chainClient(chain.socketPath);
  const { address } = privateKeyToAccount(walletKey);
  await fund(client, privateKeyToAccount(facilitatorKey).address, { ether: GAS_WEI });
  if ((await usdcBalance(client, address)) < MIN_WALLET_MICRO_USDC) {
    await fund(client, address, { usdc: WALLET_MICRO_USDC });
  }
  await chain.persist();
  return { address, privateKey: walletKey };
}

async function signingKeysFile(dataDir: string): Promise<string> {
  const file = join(dataDir, 'signing-keys.json');
  const kept = await readUnsharedFile(file);
  const keys = kept ?? `${JSON.stringify(rotateKeys(undefined, new Date()), null, 2)}\n`;
  if (kept === undefined) await createOwnFile(file, keys);
  await writeTrustFile(dataDir, keys);
  return file;
}

/**
 * Writes DATA_DIR/trust.json: public keys for the client's option `trust`. With real money they come from the operator.
 * @param signingKeys the text of the gateway's SIGNING_KEYS_FILE
 */
export async function writeTrustFile(dataDir: string, signingKeys: string): Promise<void> {
  const trust = pinnedKeys(parseSigningKeys(signingKeys, new Date()));
  await replaceOwnFile(join(dataDir, 'trust.json'), `${JSON.stringify(trust, null, 2)}\n`);
}
