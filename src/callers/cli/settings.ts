import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { readUsd, UsageError } from '../../lib/arguments.ts';
import { isConfidential } from '../../lib/loopback.ts';
import { formatUsd } from '../../lib/money.ts';
import type { BudgetLimits } from '../budget/file-budget.ts';
import type { Flow, PinnedKey, SpeechgateOptions } from '../client/index.ts';
import {
  fingerprintOf,
  flowWord,
  maskedAccount,
  readBaseUrl,
  readFlow,
  readPinnedKeys,
  readWalletKey,
} from './read-values.ts';
import { settingsFolder } from './settings-folder.ts';
import {
  CONFIG_FILE,
  followedTrust,
  otherServicesOfWallet,
  readConfig,
  readTrust,
  readWallet,
  type StoredConfig,
  WALLET_FILE,
} from './stored-settings.ts';

const HEADER_VALUE = /^[\x21-\x7e]{1,200}$/;

export interface Settings {
  readonly folder: string;
  readonly baseUrl: string;
  readonly flow: Flow;
  readonly account: string | undefined;
  readonly walletKey: Hex | undefined;
  readonly trust: readonly PinnedKey[];
  readonly caps: BudgetLimits;
  /** An RPC address of the chain; undefined for a public one. */
  readonly node: string | undefined;
}

/** Environment variables override the file. @throws UsageError */
export async function readSettings(env: NodeJS.ProcessEnv, pay?: Flow): Promise<Settings> {
  const folder = settingsFolder(env);
  const config = await readConfig(folder);
  const variable = (name: string): string | undefined => env[name]?.trim() || undefined;
  const url = variable('SPEECHGATE_URL') ?? config.url;
  if (url === undefined) {
    throw new UsageError(
      'No service is set. Run speechgate connect URL, or speechgate connect --sandbox to try one on this machine.',
    );
  }
  const baseUrl = readBaseUrl(url, 'SPEECHGATE_URL');
  const walletKey = variable('SPEECHGATE_WALLET_KEY');
  const trust = variable('SPEECHGATE_TRUST');
  return {
    folder,
    baseUrl,
    flow: pay ?? readFlow(variable('SPEECHGATE_PAY') ?? config.pay ?? 'card', 'SPEECHGATE_PAY'),
    account: accountOf(variable('SPEECHGATE_ACCOUNT'), config.accounts?.[baseUrl]),
    walletKey: walletKey ? readWalletKey(walletKey, 'SPEECHGATE_WALLET_KEY') : await storedKey(folder, baseUrl),
    trust: trust ? await readPinnedKeys(trust, 'SPEECHGATE_TRUST') : await readTrust(folder, baseUrl),
    caps: capsOf(env, config),
    node: nodeOf(variable('SPEECHGATE_RPC_URL'), config.nodes?.[baseUrl]),
  };
}

/** The error never contains the address, which may have a key. */
function nodeOf(fromEnv: string | undefined, stored: string | undefined): string | undefined {
  const node = fromEnv ?? stored;
  if (node === undefined || (URL.canParse(node) && /^https?:$/.test(new URL(node).protocol))) return node;
  throw new UsageError('SPEECHGATE_RPC_URL must be the http or https URL of a node of the chain.');
}

/** The error never contains the id. */
function accountOf(fromEnv: string | undefined, stored: unknown): string | undefined {
  const account = fromEnv ?? stored;
  if (account === undefined || (typeof account === 'string' && HEADER_VALUE.test(account))) return account;
  const source = fromEnv === undefined ? `accounts in ${CONFIG_FILE}` : 'SPEECHGATE_ACCOUNT';
  throw new UsageError(
    `${source} is not the id of a credit account. Correct it, or buy credit with speechgate top-up. Nothing was bought.`,
  );
}

async function storedKey(folder: string, baseUrl: string): Promise<Hex | undefined> {
  const wallet = await readWallet(folder, baseUrl);
  return wallet && readWalletKey(wallet.privateKey, `privateKey in ${WALLET_FILE}`);
}

export const readSetCaps = async (env: NodeJS.ProcessEnv): Promise<BudgetLimits> =>
  capsOf(env, await readConfig(settingsFolder(env)));

function capsOf(env: NodeJS.ProcessEnv, config: StoredConfig): BudgetLimits {
  const source = (variable: string, member: 'maxPerCall' | 'maxPerDay' | 'maxTotal') =>
    env[variable] === undefined
      ? ([`${member} in ${CONFIG_FILE}`, config[member]] as const)
      : ([variable, env[variable]] as const);
  return readCaps({
    perCallMicroUsd: source('SPEECHGATE_MAX_PER_CALL', 'maxPerCall'),
    perDayMicroUsd: source('SPEECHGATE_MAX_PER_DAY', 'maxPerDay'),
    totalMicroUsd: source('SPEECHGATE_MAX_TOTAL', 'maxTotal'),
  });
}

/** @throws UsageError also for a blank cap, which would be no cap */
export function readCaps(
  texts: Readonly<Record<keyof BudgetLimits, readonly [name: string, text: string | undefined]>>,
): BudgetLimits {
  const caps = Object.entries(texts).flatMap(([cap, [name, text]]) => {
    if (text === undefined) return [];
    if (text.trim() !== '') return [[cap, readUsd(text, name)]];
    throw new UsageError(`The cap ${name} is empty. Set US dollars, such as 0.01, or remove it. Nothing was bought.`);
  });
  return Object.fromEntries(caps);
}

export function capsLine({ perCallMicroUsd, perDayMicroUsd, totalMicroUsd }: BudgetLimits): string {
  const caps = [
    [perCallMicroUsd, 'per call'],
    [perDayMicroUsd, 'per day'],
    [totalMicroUsd, 'in total'],
  ] as const;
  const set = caps.flatMap(([cap, of]) => (cap === undefined ? [] : [`${formatUsd(cap)} USD ${of}`]));
  return set.length > 0
    ? `Caps: ${set.join(', ')}.`
    : 'There is no cap: the whole balance can be spent. Set one with speechgate connect --max-per-day 1.';
}

/** Allows http only for loopback, or if the user has allowed it. @throws UsageError before anything is sent */
export async function insecureHttp(
  env: NodeJS.ProcessEnv,
  baseUrl: string,
  isAllowed = false,
): Promise<Pick<SpeechgateOptions, 'allowInsecureHttp'>> {
  if (isConfidential(new URL(baseUrl))) return {};
  const variable = env.SPEECHGATE_INSECURE?.trim() ?? '';
  if (!isAllowed && !['', 'true', 'false'].includes(variable)) {
    throw new UsageError(`SPEECHGATE_INSECURE must be true or false, not ${variable}.`);
  }
  if (isAllowed || variable === 'true' || (await readConfig(settingsFolder(env))).insecure?.[baseUrl] === true) {
    return { allowInsecureHttp: true };
  }
  throw new UsageError(
    `The connection to ${baseUrl} is not encrypted, so others could read your account's id and change responses. Use https, or ` +
      `allow http with speechgate connect ${baseUrl} --insecure (or SPEECHGATE_INSECURE=true). Nothing was sent.`,
  );
}

/** @throws UsageError as `insecureHttp` */
export const clientOptions = async (
  env: NodeJS.ProcessEnv,
  baseUrl: string,
  trust: readonly PinnedKey[],
  isInsecureAllowed = false,
): Promise<SpeechgateOptions> => ({
  baseUrl,
  ...(await insecureHttp(env, baseUrl, isInsecureAllowed)),
  ...(await followedTrust(settingsFolder(env), baseUrl, trust)),
});

export async function describeSettings(settings: Settings): Promise<{ document: object; lines: readonly string[] }> {
  const { baseUrl, flow, account, walletKey, trust, caps, folder } = settings;
  const wallet = walletKey && privateKeyToAccount(walletKey).address;
  const walletAlsoAt = wallet ? await otherServicesOfWallet(folder, baseUrl, wallet) : [];
  const keys = await Promise.all(
    trust.map(async (key) => ({ keyId: key.keyId, fingerprint: await fingerprintOf(key) })),
  );
  const displayed = account === undefined ? null : maskedAccount(account);
  const usd = (amount: bigint | undefined) => (amount === undefined ? 'no limit' : `${formatUsd(amount)} USD`);
  const { perCallMicroUsd = null, perDayMicroUsd = null, totalMicroUsd = null } = caps;
  const lines = [
    `service   ${baseUrl}`,
    `pays by   ${flowWord(flow)}`,
    `account   ${displayed ?? 'none (speechgate top-up buys credit)'}`,
    `wallet    ${wallet ?? 'none (create one with --wallet create)'}`,
    ...(walletAlsoAt.length === 0
      ? []
      : [
          `WARNING   this wallet is also set for ${walletAlsoAt.join(', ')}. Use a separate wallet for each service (--wallet FILE).`,
        ]),
    ...(keys.length === 0 ? ['trusts    no key (set one with --trust or --fingerprint)'] : []),
    ...keys.map(({ keyId, fingerprint }) => `trusts    ${keyId}, fingerprint ${fingerprint}`),
    `caps      ${usd(caps.perCallMicroUsd)} per call, ${usd(caps.perDayMicroUsd)} per day, ${usd(caps.totalMicroUsd)} in total`,
    `stored in ${folder}`,
  ];
  const document = {
    url: baseUrl,
    pay: flowWord(flow),
    account: displayed,
    wallet: wallet ?? null,
    walletAlsoAt,
    trust: keys,
    folder,
    caps: { perCallMicroUsd, perDayMicroUsd, totalMicroUsd },
  };
  return { document, lines };
}
