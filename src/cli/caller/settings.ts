import type { Hex } from 'viem';
import type { BudgetLimits } from '../../budget/file-budget.ts';
import type { PinnedKey } from '../../client/index.ts';
import type { Flow } from '../../client/pending-purchase.ts';
import { UsageError } from '../usage-error.ts';
import { readBaseUrl } from './base-url.ts';
import { readCaps } from './caps.ts';
import { readFlow } from './flow-word.ts';
import { readPinnedKeys } from './pinned-keys.ts';
import { settingsFolder } from './settings-folder.ts';
import { CONFIG_FILE, readConfig, readTrust, readWallet, type StoredConfig, WALLET_FILE } from './stored-settings.ts';
import { readWalletKey } from './wallet-key.ts';

/** What an account's id may be in a header. */
const SENDABLE = /^[\x21-\x7e]{1,200}$/;

/** All that a caller has set, of the service that is used now. */
export interface Settings {
  readonly folder: string;
  readonly baseUrl: string;
  readonly flow: Flow;
  /** The bearer id of the credit account. */
  readonly account: string | undefined;
  readonly walletKey: Hex | undefined;
  readonly trust: readonly PinnedKey[];
  /** What may be spent. */
  readonly caps: BudgetLimits;
}

/**
 * Reads the settings: a variable of the environment goes before the file.
 * @throws UsageError which says what to set, or mend
 */
export async function readSettings(env: NodeJS.ProcessEnv, pay?: Flow): Promise<Settings> {
  const folder = settingsFolder(env);
  const config = await readConfig(folder);
  const said = (name: string): string | undefined => env[name]?.trim() || undefined;
  const url = said('SPEECHGATE_URL') ?? config.url;
  if (url === undefined) {
    throw new UsageError('No service is set. Run speechgate connect URL, or set SPEECHGATE_URL.');
  }
  const baseUrl = readBaseUrl(url, 'SPEECHGATE_URL');
  const walletKey = said('SPEECHGATE_WALLET_KEY');
  const trust = said('SPEECHGATE_TRUST');
  return {
    folder,
    baseUrl,
    flow: pay ?? readFlow(said('SPEECHGATE_PAY') ?? config.pay ?? 'card', 'SPEECHGATE_PAY'),
    account: accountOf(said('SPEECHGATE_ACCOUNT'), config.accounts?.[baseUrl]),
    walletKey: walletKey ? readWalletKey(walletKey, 'SPEECHGATE_WALLET_KEY') : await storedKey(folder, baseUrl),
    trust: trust ? await readPinnedKeys(trust, 'SPEECHGATE_TRUST') : await readTrust(folder, baseUrl),
    caps: capsOf(env, config),
  };
}

/** @throws UsageError, which does not show it: a request with it would fail once something is to be bought */
function accountOf(said: string | undefined, stored: unknown): string | undefined {
  const account = said ?? stored;
  if (account === undefined || (typeof account === 'string' && SENDABLE.test(account))) return account;
  const place = said === undefined ? `accounts in ${CONFIG_FILE}` : 'SPEECHGATE_ACCOUNT';
  throw new UsageError(
    `${place} is no id of a credit account: it can't be sent in a header. Nothing was sent or bought.`,
  );
}

/** What may be spent, whatever the service. @throws UsageError */
export const readSetCaps = async (env: NodeJS.ProcessEnv): Promise<BudgetLimits> =>
  capsOf(env, await readConfig(settingsFolder(env)));

function capsOf(env: NodeJS.ProcessEnv, { maxPerCall, maxPerDay, maxTotal }: StoredConfig): BudgetLimits {
  const given = (variable: string, stored: string | undefined, member: string) =>
    env[variable] === undefined
      ? ([`${member} in ${CONFIG_FILE}`, stored] as const)
      : ([variable, env[variable]] as const);
  return readCaps({
    perCallMicroUsd: given('SPEECHGATE_MAX_PER_CALL', maxPerCall, 'maxPerCall'),
    perDayMicroUsd: given('SPEECHGATE_MAX_PER_DAY', maxPerDay, 'maxPerDay'),
    totalMicroUsd: given('SPEECHGATE_MAX_TOTAL', maxTotal, 'maxTotal'),
  });
}

async function storedKey(folder: string, baseUrl: string): Promise<Hex | undefined> {
  const wallet = await readWallet(folder, baseUrl);
  return wallet && readWalletKey(wallet.privateKey, `privateKey in ${WALLET_FILE}`);
}
