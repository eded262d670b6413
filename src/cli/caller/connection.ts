import type { Hex } from 'viem';
import { generatePrivateKey } from 'viem/accounts';
import { openApi } from '../../client/api.ts';
import { type PinnedKey, Speechgate } from '../../client/index.ts';
import { isUuid } from '../../lib/uuid.ts';
import { UsageError } from '../usage-error.ts';
import { keyOfFingerprint } from './fingerprint.ts';
import { followedTrust } from './followed-trust.ts';
import { insecureHttp } from './insecure-http.ts';
import { readPinnedKeys } from './pinned-keys.ts';
import { readSecret } from './read-secret.ts';
import {
  type ConfigChange,
  changeConfig,
  readTrust,
  readWallet,
  storeAccount,
  storeTrust,
  storeWallet,
} from './stored-settings.ts';
import { readWalletKey } from './wallet-key.ts';

/** What is to be set for a service; what is undefined stays as it is. */
export interface Connection {
  readonly baseUrl: string;
  readonly account: string | undefined;
  readonly walletKey: Hex | undefined;
  readonly trust: readonly PinnedKey[] | undefined;
  /** Whether it may be asked by http elsewhere than on this machine. */
  readonly isInsecure: boolean;
  /** Members of config.json; one that is undefined goes away. */
  readonly config: ConfigChange;
}

/** What a command line gives, none of it a secret itself. */
export interface GivenConnection {
  readonly wallet?: string | undefined;
  readonly account?: string | undefined;
  readonly trust?: string | undefined;
  readonly fingerprint?: string | undefined;
  readonly insecure: boolean;
}

/**
 * Reads the secrets and keys that the options lead to.
 * @throws UsageError
 */
export async function readConnection(
  folder: string,
  baseUrl: string,
  { wallet, account, trust, fingerprint, insecure: isInsecure }: GivenConnection,
): Promise<Omit<Connection, 'config'>> {
  if (wallet === '-' && account === '-')
    throw new UsageError('--wallet - and --account - both want standard input. Name a file.');
  if (trust !== undefined && fingerprint !== undefined) throw new UsageError('Say --trust or --fingerprint, not both.');
  if (wallet === 'create' && (await readWallet(folder, baseUrl))) {
    throw new UsageError('--wallet create: this service has a wallet already; speechgate connect shows it.');
  }
  await insecureHttp(folder, baseUrl, isInsecure);
  return {
    baseUrl,
    isInsecure,
    walletKey: wallet === undefined ? undefined : await readKey(wallet),
    account: account === undefined ? undefined : await readAccount(account),
    trust:
      trust !== undefined
        ? await readPinnedKeys(trust, '--trust')
        : fingerprint !== undefined
          ? [await keyOfFingerprint(await shownKeys(baseUrl), fingerprint)]
          : undefined,
  };
}

/**
 * Asks the service, under the keys that are or would be trusted, so that nothing is kept that can't work.
 * @throws SpeechgateError
 */
export async function tryConnection(folder: string, { baseUrl, trust, isInsecure }: Connection): Promise<void> {
  const pinned = trust ?? (await readTrust(folder, baseUrl));
  const client = new Speechgate({
    baseUrl,
    ...(await insecureHttp(folder, baseUrl, isInsecure)),
    ...(await followedTrust(folder, baseUrl, pinned)),
  });
  await client.models();
  if (pinned.length > 0) await client.metadata();
}

export async function keepConnection(folder: string, connection: Connection): Promise<void> {
  const { baseUrl, account, walletKey, trust, isInsecure, config } = connection;
  await changeConfig(folder, ({ insecure }) => ({
    ...{ url: baseUrl, ...config },
    ...(isInsecure && { insecure: { ...insecure, [baseUrl]: true } }),
  }));
  if (account !== undefined) await storeAccount(folder, baseUrl, account);
  if (walletKey !== undefined) await storeWallet(folder, baseUrl, walletKey);
  if (trust !== undefined && trust.length > 0) await storeTrust(folder, baseUrl, trust);
}

const readKey = async (place: string): Promise<Hex> =>
  place === 'create' ? generatePrivateKey() : readWalletKey(await readSecret(place, '--wallet'), '--wallet');

async function readAccount(place: string): Promise<string> {
  const account = await readSecret(place, '--account');
  if (isUuid(account)) return account;
  throw new UsageError('--account takes a file with the id of a credit account, which is a UUID.');
}

/** As the service shows them: nothing vouches for them yet. */
async function shownKeys(baseUrl: string): Promise<readonly PinnedKey[]> {
  const signal = AbortSignal.timeout(15_000);
  const shown = await openApi(baseUrl)
    .GET('/.well-known/x402-service-metadata', { signal })
    .catch(() => undefined);
  const keys: unknown = shown?.data?.payload?.trust?.keys;
  if (!Array.isArray(keys) || keys.length === 0) {
    throw new UsageError(`--fingerprint: ${baseUrl} shows no keys, so there is nothing to compare it with.`);
  }
  return readPinnedKeys(JSON.stringify(keys), '--fingerprint');
}
