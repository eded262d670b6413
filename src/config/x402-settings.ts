import { createPrivateKey, type JsonWebKey, type KeyObject } from 'node:crypto';
import { compileSchema } from '../lib/json-schema.ts';
import { checksumAddress } from '../lib/keccak.ts';
import { objectOf } from './catalog-upstreams.ts';
import { type Asset, DEFAULT_ASSET, DEFAULT_NETWORK } from './network.ts';
import { type Payee, PayeeError, parsePayees } from './payees.ts';
import { HEADER_TEXT, type SettingsReader } from './settings-reader.ts';
import { parseSigningKeys, type SigningKey, SigningKeysError } from './signing-keys.ts';

export type NodeUrls = readonly [string, ...string[]];

/** How long a deposit waits for its confirmations (R35). */
export const DEPOSIT_TIMEOUT_SECONDS = 120;
const SETTLE_TIMEOUT_MS = 30_000;
/** How long a transfer of speech is awaited (R25): our node may be behind the facilitator's. */
const INCLUSION_TIMEOUT_MS = 5_000;

/** A bearer token, a key that signs a token for each request, or headers. */
export type FacilitatorCredential =
  | string
  | { readonly id: string; readonly privateKey: KeyObject }
  | { readonly headers: Readonly<Record<string, string>> };

export interface FacilitatorConfig {
  readonly url: string;
  readonly credential: FacilitatorCredential | undefined;
  /** What holds the credential, for people. */
  readonly setting: string;
}

export interface X402Config {
  /** Verify fails over from each to the next. */
  readonly facilitators: readonly FacilitatorConfig[];
  readonly payees: readonly Payee[];
  readonly asset: Asset;
  readonly probeAnswer: 400 | 402;
  readonly rpcUrls: NodeUrls | undefined;
  readonly confirmationTimeoutMs: number;
  readonly settleTimeoutMs: number;
  /** Of the transfer for speech, after settle was answered. */
  readonly inclusionTimeoutMs: number;
}

export interface QuoteConfig {
  readonly secrets: readonly [string, ...string[]];
  /** How long a quote is honoured (R29). */
  readonly ttlSeconds: number;
}

export function readX402(reader: SettingsReader): X402Config | undefined {
  const payTo = reader.text('X402_PAY_TO');
  const given = ['X402_FACILITATOR_URL', 'X402_FACILITATORS'].find((name) => reader.text(name) !== undefined);
  const facilitators = readFacilitators(reader);
  const rpcUrls = readNodes(reader);
  const asset = readAsset(reader);
  const probe = reader.text('X402_PROBE_ANSWER') ?? '400';
  if (probe !== '400' && probe !== '402') {
    const fix = 'Set it to 400, or to 402 so that directories can list this service.';
    reader.fault('X402_PROBE_ANSWER', 'is neither 400 nor 402', fix);
  }
  const payees = payTo === undefined ? undefined : readPayees(reader, payTo);
  if (payTo && !given)
    reader.missing('X402_FACILITATOR_URL', 'X402_PAY_TO', 'Set it to the base URL of the facilitator.');
  if (given && !payTo) reader.missing('X402_PAY_TO', given, 'Set it to the address that receives payments.');
  if (!facilitators || !payees || !asset) return undefined;
  const probeAnswer = probe === '402' ? 402 : 400;
  const confirmationTimeoutMs = DEPOSIT_TIMEOUT_SECONDS * 1000;
  const timeouts = {
    confirmationTimeoutMs,
    settleTimeoutMs: SETTLE_TIMEOUT_MS,
    inclusionTimeoutMs: INCLUSION_TIMEOUT_MS,
  };
  return { facilitators, payees, asset, probeAnswer, rpcUrls, ...timeouts };
}

/** One by settings of its own, or several in X402_FACILITATORS. */
function readFacilitators(reader: SettingsReader): readonly FacilitatorConfig[] | undefined {
  const [name, other] = ['X402_FACILITATORS', 'X402_FACILITATOR_URL'];
  const url = reader.httpUrl(other, reader.text(other), 'https://facilitator.example/x402')?.href;
  const credential = readFacilitatorCredential(reader);
  const setting = typeof credential === 'object' ? KEY_SECRET : TOKEN;
  if (credential && !reader.text(other))
    reader.missing(other, setting, `Set it (not beside ${name}), or unset ${setting}.`);
  const list = reader.text(name);
  if (list === undefined) return url === undefined ? undefined : [{ url, credential, setting }];
  if (reader.text(other)) return reader.fault(name, `is set, and ${other} is too`, 'Unset one of them.');
  const listed = parseList(list);
  if (!listed) return reader.fault(name, 'is not a list of facilitators in JSON', LIST_FIX);
  const read = listed.map(({ url, auth, headers, key }): FacilitatorConfig | undefined => {
    const parsed = reader.httpUrl(name, url, 'https://facilitator.example/x402');
    const credential = auth ?? (headers ? { headers } : key && readKey(reader, name, key.id, key.secret));
    return parsed && { url: parsed.href, credential, setting: `${name} (${parsed.host})` };
  });
  return read.filter((each) => each !== undefined);
}

interface ListedFacilitator {
  url: string;
  auth?: string;
  headers?: Record<string, string>;
  key?: { id: string; secret: string };
}

const LIST_FIX =
  'Set it to JSON such as [{"url":"https://a.example","auth":"token"},{"url":"https://b.example"}]. Instead of auth, ' +
  'an entry can have headers, or key with id and secret.';

const auth = { type: 'string', pattern: HEADER_TEXT.source };
const headers = { type: 'object', propertyNames: { pattern: '^[A-Za-z0-9-]+$' }, additionalProperties: auth };
const key = objectOf({ id: { type: 'string', minLength: 1 }, secret: { type: 'string' } });
const isList = compileSchema<ListedFacilitator[]>({
  type: 'array',
  minItems: 1,
  // The address, and at most one credential.
  items: { ...objectOf({ url: { type: 'string' } }, { auth, headers, key }), maxProperties: 2 },
});

function parseList(text: string): ListedFacilitator[] | undefined {
  try {
    const list: unknown = JSON.parse(text);
    return isList(list) ? list : undefined;
  } catch {
    return undefined;
  }
}

const [TOKEN, KEY_ID, KEY_SECRET] = [
  'X402_FACILITATOR_AUTH',
  'X402_FACILITATOR_KEY_ID',
  'X402_FACILITATOR_KEY_SECRET',
] as const;

function readFacilitatorCredential(reader: SettingsReader): FacilitatorCredential | undefined {
  const token = reader.headerText(TOKEN);
  const id = reader.text(KEY_ID);
  const secret = reader.text(KEY_SECRET);
  if (id === undefined && secret === undefined) return token;
  if (secret === undefined) return reader.missing(KEY_SECRET, KEY_ID, `Set ${KEY_SECRET} too, or unset ${KEY_ID}.`);
  const key = readKey(reader, KEY_SECRET, id ?? '', secret);
  if (!key) return undefined;
  if (id === undefined) return reader.missing(KEY_ID, KEY_SECRET, `Set ${KEY_ID} too, or unset ${KEY_SECRET}.`);
  if (token)
    return reader.fault(TOKEN, `is set, and ${KEY_ID} is too`, `Unset ${TOKEN}, or both ${KEY_ID} and ${KEY_SECRET}.`);
  return key;
}

function readKey(reader: SettingsReader, setting: string, id: string, secret: string) {
  const privateKey = readPrivateKey(secret);
  if (privateKey) return { id, privateKey };
  const problem = setting === KEY_SECRET ? 'is not a private key' : 'has a secret that is not a private key';
  return reader.fault(setting, problem, 'Set that secret to an EC key in PEM, or an Ed25519 key in base64.');
}

const ED25519_BYTES = 64;

/** As CDP gives them: an EC key in PEM, or seed and public key of Ed25519 in base64. */
function readPrivateKey(secret: string): KeyObject | undefined {
  const bytes = Buffer.from(secret, 'base64');
  const [d, x] = [bytes.subarray(0, 32), bytes.subarray(32)].map((part) => part.toString('base64url'));
  const jwk = { kty: 'OKP', crv: 'Ed25519', d, x } as JsonWebKey;
  try {
    // A file of settings writes line ends as \n.
    if (secret.startsWith('-----')) return createPrivateKey(secret.replaceAll('\\n', '\n'));
    return bytes.length === ED25519_BYTES ? createPrivateKey({ key: jwk, format: 'jwk' }) : undefined;
  } catch {
    return undefined;
  }
}

function readNodes(reader: SettingsReader): NodeUrls | undefined {
  const nodes = reader
    .list('X402_RPC_URL')
    .map((entry) => reader.httpUrl('X402_RPC_URL', entry, 'https://mainnet.base.org')?.href);
  const [first, ...others] = [...new Set(nodes.filter((node) => node !== undefined))];
  return first === undefined ? undefined : [first, ...others];
}

function readAsset(reader: SettingsReader): Asset | undefined {
  const network = reader.text('X402_NETWORK') ?? DEFAULT_NETWORK;
  const chainId = Number(/^eip155:([1-9]\d{0,14})$/.exec(network)?.[1]);
  if (!chainId) {
    reader.fault(
      'X402_NETWORK',
      'is not the name of an EVM network',
      `Set it to a CAIP-2 name such as ${DEFAULT_NETWORK}.`,
    );
  }
  const address = reader.text('X402_ASSET') ?? DEFAULT_ASSET;
  if (!/^0x[0-9a-fA-F]{40}$/.test(address)) {
    return reader.fault(
      'X402_ASSET',
      'is not an EVM address',
      `Set it to the address of the token, such as ${DEFAULT_ASSET}.`,
    );
  }
  return {
    network: network as Asset['network'],
    chainId,
    address: checksumAddress(address),
    name: reader.text('X402_ASSET_NAME') ?? 'USD Coin',
    version: reader.text('X402_ASSET_VERSION') ?? '2',
  };
}

function readPayees(reader: SettingsReader, setting: string): readonly Payee[] | undefined {
  try {
    return parsePayees(setting);
  } catch (error) {
    if (!(error instanceof PayeeError)) throw error;
    const fix = 'List entries as address[:status[:validFrom[:validUntil]]], exactly one with the status current.';
    return reader.fault('X402_PAY_TO', error.message, fix);
  }
}

export function readQuotes(reader: SettingsReader): QuoteConfig | undefined {
  const [first, ...rest] = reader.secrets('QUOTE_SECRET');
  const ttlSeconds = reader.integer('QUOTE_TTL_SECONDS', 1, 86_400) ?? 300;
  return first === undefined ? undefined : { secrets: [first, ...rest], ttlSeconds };
}

export function readSigningKeys(reader: SettingsReader): readonly SigningKey[] | undefined {
  const file = reader.text('SIGNING_KEYS_FILE');
  if (file === undefined) return undefined;
  const content = reader.file('SIGNING_KEYS_FILE', file, 'Create it with: speechgate keys.');
  if (content === undefined) return undefined;
  try {
    return parseSigningKeys(content, new Date());
  } catch (error) {
    if (!(error instanceof SigningKeysError)) throw error;
    return reader.fault('SIGNING_KEYS_FILE', `names a file that ${error.message}`, error.fix);
  }
}
