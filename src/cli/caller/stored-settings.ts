import { join } from 'node:path';
import type { Address, Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { PinnedKey } from '../../client/index.ts';
import { replaceOwnFile } from '../../lib/private-files.ts';
import { UsageError } from '../usage-error.ts';
import { assertKnown } from './known-names.ts';
import { changeSettings, readSettingsFile, writeSettingsFile } from './settings-folder.ts';

export const CONFIG_FILE = 'config.json';
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
  /** Services that may be asked by http elsewhere than on this machine. */
  readonly insecure?: ByService<true>;
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

const MEMBERS: Readonly<Record<keyof StoredConfig, 'string' | 'object'>> = {
  url: 'string',
  pay: 'string',
  maxPerCall: 'string',
  maxPerDay: 'string',
  maxTotal: 'string',
  insecure: 'object',
  accounts: 'object',
  formerAccounts: 'object',
  topUps: 'object',
};

/** @throws UsageError for members that are misspelt or of another type: a cap that is not read would be no cap */
export async function readConfig(folder: string): Promise<StoredConfig> {
  const config = await readObject<unknown>(folder, CONFIG_FILE);
  assertKnown(Object.keys(config), Object.keys(MEMBERS), CONFIG_FILE);
  for (const [name, type] of Object.entries(MEMBERS)) {
    const value = config[name];
    if (value === undefined || (type === 'string' ? typeof value === 'string' : isObject(value))) continue;
    const wanted = type === 'string' ? 'a text in quotes, such as "0.01" for US dollars' : 'an object';
    throw new UsageError(`${name} in ${CONFIG_FILE} has to be ${wanted}; it is ${JSON.stringify(value)}.`);
  }
  return config as StoredConfig;
}

/** @throws UsageError when the file holds something else */
export async function readObject<T>(folder: string, name: string): Promise<ByService<T>> {
  const value = (await readSettingsFile(folder, name)) ?? {};
  if (isObject(value)) return value as ByService<T>;
  throw new UsageError(`${name} has to hold an object. Correct it, or remove it and run speechgate connect again.`);
}

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Members to change; one that is undefined goes away. */
export type ConfigChange = { readonly [Name in keyof StoredConfig]?: StoredConfig[Name] | undefined };

export const changeConfig = (folder: string, change: (config: StoredConfig) => ConfigChange): Promise<void> =>
  changeSettings(folder, async () => {
    const config = await readConfig(folder);
    await writeSettingsFile(folder, CONFIG_FILE, { ...config, ...change(config) });
  });

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
export async function readWallet(folder: string, baseUrl: string): Promise<StoredWallet | undefined> {
  const { [baseUrl]: wallet } = await readObject<StoredWallet>(folder, WALLET_FILE);
  if (wallet === undefined || typeof wallet?.privateKey === 'string') return wallet;
  throw new UsageError(`${WALLET_FILE} has no privateKey for ${baseUrl}. Run speechgate connect --wallet FILE.`);
}

/** The other services that know a wallet with this address. */
export async function otherServicesOfWallet(folder: string, baseUrl: string, address: Address): Promise<string[]> {
  const wallets = Object.entries(await readObject<StoredWallet>(folder, WALLET_FILE));
  return wallets.filter(([url, wallet]) => url !== baseUrl && wallet?.address === address).map(([url]) => url);
}

/** Puts a wallet in the place of a former one, whose key is kept in a file of its own: it may hold money. */
export const storeWallet = (folder: string, baseUrl: string, privateKey: Hex): Promise<Address> =>
  changeSettings(folder, async () => {
    const { address } = privateKeyToAccount(privateKey);
    const wallets = await readObject<StoredWallet>(folder, WALLET_FILE);
    const former = wallets[baseUrl];
    if (former && former.address !== address) {
      await replaceOwnFile(join(folder, `wallet-${former.address}.json`), `${JSON.stringify(former, null, 2)}\n`);
    }
    await writeSettingsFile(folder, WALLET_FILE, { ...wallets, [baseUrl]: { address, privateKey } });
    return address;
  });

/** The keys of the service that its operator gave out. */
export async function readTrust(folder: string, baseUrl: string): Promise<readonly PinnedKey[]> {
  const { [baseUrl]: keys = [] } = await readObject<readonly PinnedKey[]>(folder, TRUST_FILE);
  if (Array.isArray(keys)) return keys;
  throw new UsageError(`${TRUST_FILE} has no list of keys for ${baseUrl}. Run speechgate connect --trust FILE.`);
}

export const storeTrust = (folder: string, baseUrl: string, keys: readonly PinnedKey[]): Promise<void> =>
  changeSettings(folder, async () => {
    const trust = await readObject<readonly PinnedKey[]>(folder, TRUST_FILE);
    await writeSettingsFile(folder, TRUST_FILE, { ...trust, [baseUrl]: keys });
  });
