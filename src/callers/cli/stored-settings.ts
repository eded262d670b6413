import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Address, Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { UsageError } from '../../lib/arguments.ts';
import { findMisspelt } from '../../lib/misspelt.ts';
import { replaceOwnFile } from '../../lib/private-files.ts';
import type { FollowedTrust, PinnedKey, SpeechgateOptions } from '../client/index.ts';
import { changeSettings, readSettingsFile, writeSettingsFile } from './settings-folder.ts';

export const CONFIG_FILE = 'config.json';
export const WALLET_FILE = 'wallet.json';
const TRUST_FILE = 'trust.json';
const FOLLOWED_FILE = 'followed.json';

/** Keyed by the service's origin. An account, wallet or key is never sent to another service. */
type ByService<T> = Readonly<Record<string, T>>;

/** config.json. Caps are US dollars, such as 0.01. */
export interface StoredConfig {
  readonly url?: string;
  readonly pay?: string;
  readonly maxPerCall?: string;
  readonly maxPerDay?: string;
  readonly maxTotal?: string;
  readonly insecure?: ByService<true>;
  readonly accounts?: ByService<string>;
  /** RPC addresses of sandboxes' chains. */
  readonly nodes?: ByService<string>;
  /** Replaced accounts, which may still have credit. */
  readonly formerAccounts?: ByService<readonly string[]>;
  /** Top-ups with an unknown outcome. */
  readonly topUps?: ByService<readonly StoredTopUp[]>;
}

export interface StoredTopUp {
  readonly sessionId: string;
  readonly checkoutUrl: string;
  readonly amountCents: number;
  /** The credited account; null for a new one. */
  readonly account: string | null;
  readonly openedAt: number;
}

interface StoredWallet {
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
  nodes: 'object',
  formerAccounts: 'object',
  topUps: 'object',
};

/** @throws UsageError for misspelt or mistyped members, because a cap must not be ignored */
export async function readConfig(folder: string): Promise<StoredConfig> {
  const config = await readObject<unknown>(folder, CONFIG_FILE);
  assertKnown(Object.keys(config), Object.keys(MEMBERS), CONFIG_FILE);
  for (const [name, type] of Object.entries(MEMBERS)) {
    const value = config[name];
    if (value === undefined || (type === 'string' ? typeof value === 'string' : isObject(value))) continue;
    const expected = type === 'string' ? 'text in quotes, such as "0.01"' : 'an object';
    throw new UsageError(`${name} in ${CONFIG_FILE} must be ${expected}, not ${JSON.stringify(value)}.`);
  }
  return config as StoredConfig;
}

async function readObject<T>(folder: string, name: string): Promise<ByService<T>> {
  const value = (await readSettingsFile(folder, name)) ?? {};
  if (isObject(value)) return value as ByService<T>;
  throw new UsageError(
    `The settings file ${name} must contain a JSON object. Fix it, or remove it and run speechgate connect again.`,
  );
}

const writeEntry = async (folder: string, name: string, baseUrl: string, entry: object): Promise<void> =>
  writeSettingsFile(folder, name, { ...(await readObject(folder, name)), [baseUrl]: entry });

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

export type ConfigChange = { readonly [Name in keyof StoredConfig]?: StoredConfig[Name] | undefined };

export const changeConfig = (folder: string, change: (config: StoredConfig) => ConfigChange): Promise<void> =>
  changeSettings(folder, async () => {
    const config = await readConfig(folder);
    await writeSettingsFile(folder, CONFIG_FILE, { ...config, ...change(config) });
  });

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

export const storeTopUp = (folder: string, baseUrl: string, topUp: StoredTopUp): Promise<void> =>
  changeConfig(folder, ({ topUps }) => ({ topUps: { ...topUps, [baseUrl]: [...(topUps?.[baseUrl] ?? []), topUp] } }));

export const dropTopUp = (folder: string, baseUrl: string, { sessionId }: StoredTopUp): Promise<void> =>
  changeConfig(folder, ({ topUps }) => ({
    topUps: { ...topUps, [baseUrl]: (topUps?.[baseUrl] ?? []).filter((each) => each.sessionId !== sessionId) },
  }));

export async function readWallet(folder: string, baseUrl: string): Promise<StoredWallet | undefined> {
  const { [baseUrl]: wallet } = await readObject<StoredWallet>(folder, WALLET_FILE);
  if (wallet === undefined || typeof wallet?.privateKey === 'string') return wallet;
  throw new UsageError(
    `The settings file ${WALLET_FILE} has no privateKey for ${baseUrl}. Set one with speechgate connect --wallet FILE.`,
  );
}

export async function otherServicesOfWallet(folder: string, baseUrl: string, address: Address): Promise<string[]> {
  const wallets = Object.entries(await readObject<StoredWallet>(folder, WALLET_FILE));
  return wallets.filter(([url, wallet]) => url !== baseUrl && wallet?.address === address).map(([url]) => url);
}

/** Replaces the wallet, and moves the former one to its own file, because it may hold money. */
export const storeWallet = (folder: string, baseUrl: string, privateKey: Hex): Promise<void> =>
  changeSettings(folder, async () => {
    const { address } = privateKeyToAccount(privateKey);
    const { [baseUrl]: former } = await readObject<StoredWallet>(folder, WALLET_FILE);
    if (former && former.address !== address) {
      await replaceOwnFile(join(folder, `wallet-${former.address}.json`), `${JSON.stringify(former, null, 2)}\n`);
    }
    await writeEntry(folder, WALLET_FILE, baseUrl, { address, privateKey });
  });

export async function readTrust(folder: string, baseUrl: string): Promise<readonly PinnedKey[]> {
  const { [baseUrl]: keys = [] } = await readObject<readonly PinnedKey[]>(folder, TRUST_FILE);
  if (Array.isArray(keys)) return keys;
  throw new UsageError(
    `The settings file ${TRUST_FILE} has no list of keys for ${baseUrl}. Set it with speechgate connect --trust FILE.`,
  );
}

export const storeTrust = (folder: string, baseUrl: string, keys: readonly PinnedKey[]): Promise<void> =>
  changeSettings(folder, () => writeEntry(folder, TRUST_FILE, baseUrl, keys));

interface Followed extends FollowedTrust {
  readonly pinned: readonly PinnedKey[];
}

/** Client options that trust these keys and their rotations, and store new rotations. */
export async function followedTrust(
  folder: string,
  baseUrl: string,
  pinned: readonly PinnedKey[],
): Promise<Pick<SpeechgateOptions, 'trust' | 'onTrust'>> {
  if (pinned.length === 0) return {};
  const followed = await readFollowed(folder, baseUrl, pinned);
  return { trust: followed ?? pinned, onTrust: (trust) => storeFollowed(folder, baseUrl, { pinned, ...trust }) };
}

async function readFollowed(folder: string, baseUrl: string, pinned: readonly PinnedKey[]) {
  const { [baseUrl]: followed } = await readObject<Followed>(folder, FOLLOWED_FILE);
  return followed && isDeepStrictEqual(followed.pinned, pinned) ? followed : undefined;
}

/** Does not replace trust from newer metadata of another process. */
const storeFollowed = (folder: string, baseUrl: string, followed: Followed): Promise<void> =>
  changeSettings(folder, async () => {
    const known = await readFollowed(folder, baseUrl, followed.pinned);
    if (known && issuedAt(known) >= issuedAt(followed)) return;
    await writeEntry(folder, FOLLOWED_FILE, baseUrl, followed);
  });

const issuedAt = ({ metadata }: FollowedTrust): number => Date.parse(metadata.validity.issuedAt);

const PREFIX = 'SPEECHGATE_';
const VARIABLES = [
  'SPEECHGATE_CONFIG_DIR',
  'SPEECHGATE_URL',
  'SPEECHGATE_INSECURE',
  'SPEECHGATE_PAY',
  'SPEECHGATE_ACCOUNT',
  'SPEECHGATE_WALLET_KEY',
  'SPEECHGATE_TRUST',
  'SPEECHGATE_RPC_URL',
  'SPEECHGATE_MAX_PER_CALL',
  'SPEECHGATE_MAX_PER_DAY',
  'SPEECHGATE_MAX_TOTAL',
  'SPEECHGATE_BRIDGE_TOKEN',
  'SPEECHGATE_OPERATOR',
];

/** Refuses misspelt variables, because a misspelt cap would be ignored. @throws UsageError */
export function assertVariables(env: NodeJS.ProcessEnv): void {
  const names = Object.keys(env);
  const misspelt = findMisspelt(names, new Set(VARIABLES)).map(({ name }) => name);
  assertKnown(
    names.filter((name) => name.toUpperCase().startsWith(PREFIX) || misspelt.includes(name)),
    VARIABLES,
    'the environment',
  );
}

function assertKnown(names: readonly string[], known: readonly string[], source: string): void {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const suggestion = known.find((name) => plain(name) === plain(unknown)) ?? nearest(unknown, known);
  const hint = suggestion === undefined ? `Use one of ${known.join(', ')}.` : `Did you mean ${suggestion}?`;
  throw new UsageError(`${unknown} in ${source} is not a setting. ${hint}`);
}

function nearest(name: string, known: readonly string[]): string | undefined {
  const [found] = findMisspelt([plain(name)], new Set(known.map(plain)));
  return found && known.find((each) => plain(each) === found.meant);
}

const plain = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, '');
