import { readFile } from 'node:fs/promises';
import type { Hex } from 'viem';
import type { PinnedKey } from '../../client/index.ts';
import type { Flow } from '../../client/pending-purchase.ts';
import { UsageError } from '../usage-error.ts';
import { readBaseUrl } from './base-url.ts';
import { readFlow } from './flow-word.ts';
import { readPinnedKeys } from './pinned-keys.ts';
import { readSettingsFile, settingsFolder } from './settings-folder.ts';
import { readUsd } from './usd.ts';

export const CONFIG_FILE = 'config.json';
export const WALLET_FILE = 'wallet.json';
export const TRUST_FILE = 'trust.json';
const WALLET_KEY = /^(0x)?[0-9a-f]{64}$/i;

/** config.json. An account, a wallet and keys belong to one service: none of them is ever shown to another one. */
export interface StoredConfig {
  readonly url?: string;
  /** How is paid where nothing else is said: card, x402 or prepaid. */
  readonly pay?: string;
  /** US dollars, such as 0.01. */
  readonly maxPerCall?: string;
  readonly maxPerDay?: string;
  readonly maxTotal?: string;
  /** The id of the credit account, by the address of the service. */
  readonly accounts?: Readonly<Record<string, string>>;
}

/** wallet.json, by the address of the service. */
export type StoredWallets = Readonly<Record<string, { readonly address: string; readonly privateKey: string }>>;

/** trust.json, by the address of the service. */
export type StoredTrust = Readonly<Record<string, readonly PinnedKey[]>>;

/** What may be spent, in micro-USD; no limit where nothing is said. */
export interface Caps {
  readonly perCallMicroUsd?: bigint;
  readonly perDayMicroUsd?: bigint;
  readonly totalMicroUsd?: bigint;
}

/** All that a caller has set, of the service that is used now. */
export interface Settings {
  readonly folder: string;
  readonly baseUrl: string;
  readonly flow: Flow;
  readonly account: string | undefined;
  readonly walletKey: Hex | undefined;
  readonly trust: readonly PinnedKey[];
  readonly caps: Caps;
}

/**
 * Reads the settings: a variable of the environment goes before the file.
 * @throws UsageError which says what to set, or mend
 */
export async function readSettings(env: NodeJS.ProcessEnv, pay?: Flow): Promise<Settings> {
  const folder = settingsFolder(env);
  const config = await readStoredConfig(folder);
  const said = (name: string): string | undefined => env[name]?.trim() || undefined;
  const url = said('SPEECHGATE_URL') ?? config.url;
  if (url === undefined) {
    throw new UsageError('No service is set. Run speechgate connect URL, or set SPEECHGATE_URL.');
  }
  const baseUrl = readBaseUrl(url, 'SPEECHGATE_URL');
  return {
    folder,
    baseUrl,
    flow: pay ?? readFlow(said('SPEECHGATE_PAY') ?? config.pay ?? 'card', 'SPEECHGATE_PAY'),
    account: said('SPEECHGATE_ACCOUNT') ?? config.accounts?.[baseUrl],
    walletKey: await walletKeyOf(folder, baseUrl, said('SPEECHGATE_WALLET_KEY')),
    trust: await trustOf(folder, baseUrl, said('SPEECHGATE_TRUST')),
    caps: capsOf({
      perCallMicroUsd: ['SPEECHGATE_MAX_PER_CALL', said('SPEECHGATE_MAX_PER_CALL') ?? config.maxPerCall],
      perDayMicroUsd: ['SPEECHGATE_MAX_PER_DAY', said('SPEECHGATE_MAX_PER_DAY') ?? config.maxPerDay],
      totalMicroUsd: ['SPEECHGATE_MAX_TOTAL', said('SPEECHGATE_MAX_TOTAL') ?? config.maxTotal],
    }),
  };
}

export const readStoredConfig = async (folder: string): Promise<StoredConfig> =>
  ((await readSettingsFile(folder, CONFIG_FILE)) ?? {}) as StoredConfig;

/** @throws UsageError without showing the key */
export function readWalletKey(text: string, name: string): Hex {
  const key = text.trim();
  if (WALLET_KEY.test(key)) return `0x${key.replace(/^0x/i, '').toLowerCase()}`;
  throw new UsageError(`${name} takes a private key of 64 hexadecimal digits.`);
}

async function walletKeyOf(folder: string, baseUrl: string, given: string | undefined): Promise<Hex | undefined> {
  if (given !== undefined) return readWalletKey(given, 'SPEECHGATE_WALLET_KEY');
  const wallets = (await readSettingsFile(folder, WALLET_FILE)) as StoredWallets | undefined;
  const wallet = wallets?.[baseUrl];
  return wallet && readWalletKey(wallet.privateKey, `privateKey in ${WALLET_FILE}`);
}

async function trustOf(folder: string, baseUrl: string, given: string | undefined): Promise<readonly PinnedKey[]> {
  if (given !== undefined) return readTrust(given, 'SPEECHGATE_TRUST');
  const trust = (await readSettingsFile(folder, TRUST_FILE)) as StoredTrust | undefined;
  return trust?.[baseUrl] ?? [];
}

/**
 * Pinned keys from a file, or from JSON itself.
 * @throws UsageError
 */
export async function readTrust(given: string, name: string): Promise<readonly PinnedKey[]> {
  const isJson = /^[[{]/.test(given);
  const text = isJson ? given : await readFile(given, 'utf8').catch(() => undefined);
  if (text === undefined) throw new UsageError(`${name} names ${given}, which can't be read.`);
  const keys = readPinnedKeys(parsed(text));
  if (keys) return keys;
  throw new UsageError(`${name} takes public keys of type P-256: a JWK Set, or a list of keyId and publicKeyJwk.`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function capsOf(given: Readonly<Record<keyof Caps, readonly [name: string, text: string | undefined]>>): Caps {
  const read = Object.entries(given).flatMap(([cap, [name, text]]) => (text ? [[cap, readUsd(text, name)]] : []));
  return Object.fromEntries(read);
}
