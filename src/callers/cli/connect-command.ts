import { join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import type { Hex } from 'viem';
import { generatePrivateKey } from 'viem/accounts';
import { type Arguments, readUsd, UsageError } from '../../lib/arguments.ts';
import { readUnsharedFile } from '../../lib/private-files.ts';
import { isUuid } from '../../lib/uuid.ts';
import { DamagedSandboxFileError, dataDir, readSandboxFile, SANDBOX_FILE } from '../../sandbox/sandbox-file.ts';
import { boundedResponse, openApi } from '../client/api.ts';
import { type PinnedKey, Speechgate } from '../client/index.ts';
import { defineCommand } from './command.ts';
import { orStartSandbox } from './open-caller.ts';
import type { CommandProcess } from './output.ts';
import {
  fingerprintOf,
  flowWord,
  readBaseUrl,
  readFlow,
  readPinnedKeys,
  readSecret,
  readWalletKey,
} from './read-values.ts';
import { clientOptions, describeSettings, insecureHttp, readSettings } from './settings.ts';
import { settingsFolder, toUsageError } from './settings-folder.ts';
import {
  type ConfigChange,
  changeConfig,
  readConfig,
  readTrust,
  readWallet,
  storeAccount,
  storeTrust,
  storeWallet,
} from './stored-settings.ts';

const CAPS = [
  ['max-per-call', 'maxPerCall'],
  ['max-per-day', 'maxPerDay'],
  ['max-total', 'maxTotal'],
] as const;
const SANDBOX_CONFLICTS = ['wallet', 'account', 'trust', 'fingerprint'] as const;

const OPTIONS = {
  sandbox: { type: 'boolean', default: false },
  insecure: { type: 'boolean', default: false },
  wallet: { type: 'string' },
  account: { type: 'string' },
  trust: { type: 'string' },
  fingerprint: { type: 'string' },
  pay: { type: 'string' },
  'max-per-call': { type: 'string' },
  'max-per-day': { type: 'string' },
  'max-total': { type: 'string' },
} as const;

type ConnectValues = Arguments<typeof OPTIONS>['values'];

interface Connection {
  readonly baseUrl: string;
  readonly account: string | undefined;
  readonly walletKey: Hex | undefined;
  readonly trust: readonly PinnedKey[] | undefined;
  /** Of a sandbox. */
  readonly node?: string | undefined;
}

export const connectCommand = defineCommand({
  usage: `speechgate connect [URL], or speechgate connect --sandbox [DATA_DIR]
Sets the service and how to pay; without arguments it shows the settings. They are stored in ~/.config/speechgate
(SPEECHGATE_CONFIG_DIR), readable only by you.

  URL              the service, such as https://speech.example
  --sandbox        takes service, account, wallet and keys from the sandbox in DATA_DIR; default: ./data
  --wallet create  creates a wallet; --wallet FILE reads a private key from a file, - from standard input
  --account FILE   reads the id of a credit account from a file, - from standard input; speechgate top-up stores it for you
  --trust FILE     the service's public keys, received from its operator: a JWK Set
  --fingerprint F  the fingerprint of the service's current key, instead of --trust
  --insecure       allows unencrypted http to this service, also on another machine
  --pay FLOW       the default payment: card, x402 or prepaid
  --max-per-call USD, --max-per-day USD, --max-total USD
                   caps for all commands together; "none" instead of an amount removes the cap`,
  example: 'speechgate connect https://speech.example --wallet create --max-per-day 1',
  options: OPTIONS,
  maxWords: 1,
  run: async (values, { words: [word], output, host }) => {
    const { sandbox, insecure } = values;
    const { env } = host;
    const folder = settingsFolder(env);
    const hasOption = Object.values(values).some((value) => typeof value === 'string');
    if (word !== undefined || hasOption || sandbox || insecure) {
      const connection = sandbox
        ? await readSandboxConnection(word, values)
        : await readConnection(host, await urlOf(folder, word), values);
      const config = configOf(values);
      const { baseUrl, node } = connection;
      const testing = orStartSandbox(baseUrl, testConnection(env, connection, insecure));
      await output.withProgress(`Connecting to ${baseUrl}`, testing);
      await changeConfig(folder, (stored) => ({
        url: baseUrl,
        ...config,
        ...(node && { nodes: { ...stored.nodes, [baseUrl]: node } }),
        ...(insecure && { insecure: { ...stored.insecure, [baseUrl]: true } }),
      }));
      await storeConnection(folder, connection);
    }
    const { document, lines } = await describeSettings(await readSettings(env));
    output.done(document, lines);
  },
});

async function readSandboxConnection(folder: string | undefined, values: ConnectValues): Promise<Connection> {
  const conflict = SANDBOX_CONFLICTS.find((option) => values[option] !== undefined);
  if (conflict)
    throw new UsageError(
      `--${conflict} conflicts with --sandbox, which has its own account, wallet and keys. Remove --${conflict}.`,
    );
  const { baseUrl, creditAccount: account, wallet, trust, node } = await readSandboxParts(folder);
  const walletKey = wallet ? readWalletKey(wallet.privateKey, '--sandbox') : undefined;
  return { baseUrl, account, walletKey, trust, node };
}

/** @param folder default: DATA_DIR, or ./data */
export async function readSandboxParts(folder: string = dataDir) {
  const sandbox = await toUsageError(readSandboxFile(folder), DamagedSandboxFileError);
  if (!sandbox) {
    const path = join(resolve(folder), SANDBOX_FILE);
    throw new UsageError(
      `${path} does not exist. Start a sandbox with speechgate sandbox, or give its folder: --sandbox DATA_DIR.`,
    );
  }
  const { baseUrl, creditAccount, wallet, chain } = sandbox;
  const node = chain?.rpcUrl;
  if (!wallet) return { baseUrl, creditAccount, wallet, node, trust: [] };
  const path = join(folder, 'signing-keys.json');
  const keys = await toUsageError(readUnsharedFile(path));
  if (!/^[[{]/.test(keys ?? ''))
    throw new UsageError(`${path} has no public keys. Restart the sandbox, which writes them.`);
  return { baseUrl, creditAccount, wallet, node, trust: await readPinnedKeys(keys as string, '--sandbox') };
}

async function urlOf(folder: string, word: string | undefined): Promise<string> {
  const url = word ?? (await readConfig(folder)).url;
  if (url === undefined)
    throw new UsageError('URL is missing. Give the URL of the service, such as https://speech.example.');
  return readBaseUrl(url, 'URL');
}

async function readConnection(
  { env, stdin }: CommandProcess,
  baseUrl: string,
  { wallet, account, trust, fingerprint, insecure }: ConnectValues,
): Promise<Connection> {
  if (wallet === '-' && account === '-')
    throw new UsageError('--wallet - and --account - both read standard input. Name a file for one of them.');
  if (trust !== undefined && fingerprint !== undefined)
    throw new UsageError('--trust conflicts with --fingerprint. Use one of them.');
  if (wallet === 'create' && (await readWallet(settingsFolder(env), baseUrl))) {
    throw new UsageError(
      '--wallet create: a wallet is already set for this service. See it with speechgate connect, or replace it with --wallet FILE.',
    );
  }
  await insecureHttp(env, baseUrl, insecure);
  return {
    baseUrl,
    walletKey: wallet === undefined ? undefined : await readKey(wallet, stdin),
    account: account === undefined ? undefined : await readAccount(account, stdin),
    trust:
      trust === undefined ? await keyWithFingerprint(baseUrl, fingerprint) : await readPinnedKeys(trust, '--trust'),
  };
}

const readKey = async (path: string, stdin: Readable): Promise<Hex> =>
  path === 'create' ? generatePrivateKey() : readWalletKey(await readSecret(path, '--wallet', stdin), '--wallet');

async function readAccount(path: string, stdin: Readable): Promise<string> {
  const account = await readSecret(path, '--account', stdin);
  if (isUuid(account)) return account;
  throw new UsageError(
    'The file of --account does not contain the id of a credit account. Write the id, which is a UUID, to the file.',
  );
}

/** Finds the key in the service's unverified metadata; only the fingerprint authenticates it. */
async function keyWithFingerprint(baseUrl: string, fingerprint: string | undefined): Promise<PinnedKey[] | undefined> {
  if (fingerprint === undefined) return undefined;
  const signal = AbortSignal.timeout(15_000);
  const metadata = await openApi(baseUrl, boundedResponse)
    .GET('/.well-known/x402-service-metadata', { signal })
    .catch(() => undefined);
  const keys: unknown = metadata?.data?.payload?.trust?.keys;
  if (!Array.isArray(keys) || keys.length === 0) {
    throw new UsageError(
      `--fingerprint needs the keys of the service, but ${baseUrl} returned none. Check the URL, or ask the operator of the service.`,
    );
  }
  const published = await readPinnedKeys(JSON.stringify(keys), '--fingerprint');
  for (const key of published) if ((await fingerprintOf(key)) === fingerprint) return [key];
  throw new UsageError(
    `--fingerprint ${fingerprint} matches no key of the service. Compare it with the one from the operator of the service.`,
  );
}

function configOf(values: ConnectValues): ConfigChange {
  let change: ConfigChange = values.pay === undefined ? {} : { pay: flowWord(readFlow(values.pay, '--pay')) };
  for (const [option, member] of CAPS) {
    const text = values[option];
    if (text === undefined) continue;
    if (text !== 'none') readUsd(text, `--${option}`);
    change = { ...change, [member]: text === 'none' ? undefined : text };
  }
  return change;
}

async function testConnection(
  env: NodeJS.ProcessEnv,
  { baseUrl, trust }: Connection,
  insecure: boolean,
): Promise<void> {
  const pinned = trust ?? (await readTrust(settingsFolder(env), baseUrl));
  const client = new Speechgate(await clientOptions(env, baseUrl, pinned, insecure));
  await client.models();
  if (pinned.length > 0) await client.metadata();
}

async function storeConnection(folder: string, { baseUrl, account, walletKey, trust }: Connection): Promise<void> {
  if (account !== undefined) await storeAccount(folder, baseUrl, account);
  if (walletKey !== undefined) await storeWallet(folder, baseUrl, walletKey);
  if (trust !== undefined && trust.length > 0) await storeTrust(folder, baseUrl, trust);
}
