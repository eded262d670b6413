import { join } from 'node:path';
import type { Address, Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { PinnedKey } from '../../client/index.ts';
import { createOwnFile } from '../../lib/private-files.ts';
import { readSettingsFile, writeSettingsFile } from './settings-folder.ts';

const CONFIG_FILE = 'config.json';
export const WALLET_FILE = 'wallet.json';
const TRUST_FILE = 'trust.json';

/** An account, a wallet and keys belong to one service, by its address: none of them is ever shown to another one. */
type ByService<T> = Readonly<Record<string, T>>;

/** config.json. */
export interface StoredConfig {
  readonly url?: string;
  /** How is paid where nothing else is said: card, x402 or prepaid. */
  readonly pay?: string;
  /** US dollars, such as 0.01. */
  readonly maxPerCall?: string;
  readonly maxPerDay?: string;
  readonly maxTotal?: string;
  /** The bearer id of the credit account. */
  readonly accounts?: ByService<string>;
  /** Those that another one has replaced: they may have credit. */
  readonly formerAccounts?: ByService<readonly string[]>;
  /** Purchases of credit that nobody has seen the end of. */
  readonly topUps?: ByService<readonly StoredTopUp[]>;
}

/** A purchase of credit that was opened. */
export interface StoredTopUp {
  readonly sessionId: string;
  /** Where it is paid. */
  readonly checkoutUrl: string;
  readonly amountCents: number;
  /** What it credits; null for a new account. */
  readonly account: string | null;
  /** Unix milliseconds. */
  readonly openedAt: number;
}

export interface StoredWallet {
  readonly address: Address;
  readonly privateKey: Hex;
}

type Services<T> = Promise<ByService<T> | undefined>;

export const readConfig = async (folder: string): Promise<StoredConfig> =>
  ((await readSettingsFile(folder, CONFIG_FILE)) ?? {}) as StoredConfig;

/** Members to change; one that is undefined goes away. */
export type ConfigChange = { readonly [Name in keyof StoredConfig]?: StoredConfig[Name] | undefined };

export async function changeConfig(folder: string, change: (config: StoredConfig) => ConfigChange): Promise<void> {
  const config = await readConfig(folder);
  await writeSettingsFile(folder, CONFIG_FILE, { ...config, ...change(config) });
}

/** Puts an account in the place of a former one, which is kept. */
export const storeAccount = (folder: string, baseUrl: string, accountId: string): Promise<void> =>
  changeConfig(folder, ({ accounts, formerAccounts }) => {
    const replaced = accounts?.[baseUrl];
    const known = new Set(formerAccounts?.[baseUrl]);
    if (replaced !== undefined) known.add(replaced);
    known.delete(accountId);
    return {
      accounts: { ...accounts, [baseUrl]: accountId },
      formerAccounts: { ...formerAccounts, [baseUrl]: [...known] },
    };
  });

/** Adds a purchase of credit to those that are asked for. */
export const storeTopUp = (folder: string, baseUrl: string, topUp: StoredTopUp): Promise<void> =>
  changeConfig(folder, ({ topUps }) => ({ topUps: { ...topUps, [baseUrl]: [...(topUps?.[baseUrl] ?? []), topUp] } }));

/** Forgets one whose end is known. */
export const dropTopUp = (folder: string, baseUrl: string, { sessionId }: StoredTopUp): Promise<void> =>
  changeConfig(folder, ({ topUps }) => ({
    topUps: { ...topUps, [baseUrl]: (topUps?.[baseUrl] ?? []).filter((each) => each.sessionId !== sessionId) },
  }));

/** The service's wallet. */
export const readWallet = async (folder: string, baseUrl: string): Promise<StoredWallet | undefined> =>
  (await (readSettingsFile(folder, WALLET_FILE) as Services<StoredWallet>))?.[baseUrl];

/** Puts a wallet in the place of a former one, whose key is kept in a file of its own: it may hold money. */
export async function storeWallet(folder: string, baseUrl: string, privateKey: Hex): Promise<Address> {
  const { address } = privateKeyToAccount(privateKey);
  const wallets = await (readSettingsFile(folder, WALLET_FILE) as Services<StoredWallet>);
  const former = wallets?.[baseUrl];
  if (former && former.address !== address) {
    await createOwnFile(join(folder, `wallet-${former.address}.json`), `${JSON.stringify(former, null, 2)}\n`).catch(
      (error) => {
        if (error.code !== 'EEXIST') throw error;
      },
    );
  }
  await writeSettingsFile(folder, WALLET_FILE, { ...wallets, [baseUrl]: { address, privateKey } });
  return address;
}

/** The keys of the service that its operator gave out. */
export const readTrust = async (folder: string, baseUrl: string): Promise<readonly PinnedKey[]> =>
  (await (readSettingsFile(folder, TRUST_FILE) as Services<readonly PinnedKey[]>))?.[baseUrl] ?? [];

export async function storeTrust(folder: string, baseUrl: string, keys: readonly PinnedKey[]): Promise<void> {
  const trust = await (readSettingsFile(folder, TRUST_FILE) as Services<readonly PinnedKey[]>);
  await writeSettingsFile(folder, TRUST_FILE, { ...trust, [baseUrl]: keys });
}
