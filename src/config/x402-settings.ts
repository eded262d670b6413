import { createPrivateKey, type JsonWebKey, type KeyObject } from 'node:crypto';
import { checksumAddress } from '../lib/keccak.ts';
import { type Asset, DEFAULT_ASSET, DEFAULT_NETWORK } from './network.ts';
import { type Payee, PayeeError, parsePayees } from './payees.ts';
import type { SettingsReader } from './settings-reader.ts';
import { parseSigningKeys, type SigningKey, SigningKeysError } from './signing-keys.ts';

export type NodeUrls = readonly [string, ...string[]];

/** Specification, "Limits". */
export const DEPOSIT_TIMEOUT_SECONDS = 120;
const SETTLE_TIMEOUT_MS = 30_000;
/** Our node may be behind the facilitator's. */
const INCLUSION_TIMEOUT_MS = 5_000;

/** A bearer token, or a key that signs a token for each request. */
export type FacilitatorCredential = string | { readonly id: string; readonly privateKey: KeyObject };

export interface X402Config {
  readonly facilitatorUrl: string;
  readonly facilitatorCredential: FacilitatorCredential | undefined;
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
  readonly ttlSeconds: number;
}

export function readX402(reader: SettingsReader): X402Config | undefined {
  const payTo = reader.text('X402_PAY_TO');
  const url = reader.text('X402_FACILITATOR_URL');
  const facilitator = reader.httpUrl('X402_FACILITATOR_URL', url, 'https://facilitator.example/x402');
  const facilitatorCredential = readFacilitatorCredential(reader);
  const rpcUrls = readNodes(reader);
  const asset = readAsset(reader);
  const probe = reader.text('X402_PROBE_ANSWER') ?? '400';
  if (probe !== '400' && probe !== '402') {
    const fix = 'Set it to 402 to be listed by directories, or unset it.';
    reader.fault('X402_PROBE_ANSWER', 'is neither 400 nor 402', fix);
  }
  const payees = payTo === undefined ? undefined : readPayees(reader, payTo);
  if (payTo && !url)
    reader.missing('X402_FACILITATOR_URL', 'X402_PAY_TO', 'Set it to the base URL of the facilitator.');
  if (url && !payTo) reader.missing('X402_PAY_TO', 'X402_FACILITATOR_URL', 'Set it to the address that is to be paid.');
  if (facilitatorCredential && !url) {
    const given = settingOf(facilitatorCredential);
    reader.missing('X402_FACILITATOR_URL', given, `Set it, or unset ${given}.`);
  }
  if (!facilitator || !payees || !asset) return undefined;
  const facilitatorUrl = facilitator.href;
  const probeAnswer = probe === '402' ? 402 : 400;
  const confirmationTimeoutMs = DEPOSIT_TIMEOUT_SECONDS * 1000;
  const timeouts = {
    confirmationTimeoutMs,
    settleTimeoutMs: SETTLE_TIMEOUT_MS,
    inclusionTimeoutMs: INCLUSION_TIMEOUT_MS,
  };
  return { facilitatorUrl, facilitatorCredential, payees, asset, probeAnswer, rpcUrls, ...timeouts };
}

/** The setting with the secret. */
export const settingOf = (credential: FacilitatorCredential | undefined): string =>
  typeof credential === 'object' ? 'X402_FACILITATOR_KEY_SECRET' : 'X402_FACILITATOR_AUTH';

function readFacilitatorCredential(reader: SettingsReader): FacilitatorCredential | undefined {
  const [idName, secretName] = ['X402_FACILITATOR_KEY_ID', 'X402_FACILITATOR_KEY_SECRET'];
  const token = reader.headerText('X402_FACILITATOR_AUTH');
  const id = reader.text(idName);
  const secret = reader.text(secretName);
  if (id === undefined && secret === undefined) return token;
  if (secret === undefined) return reader.missing(secretName, idName, 'Set both, or none.');
  const privateKey = readPrivateKey(secret);
  if (!privateKey) {
    const fix = 'Copy it again: an EC key in PEM, or an Ed25519 key in base64.';
    return reader.fault(secretName, 'is no private key', fix);
  }
  if (id === undefined) return reader.missing(idName, secretName, 'Set both, or none.');
  if (token)
    return reader.fault('X402_FACILITATOR_AUTH', `is set, and ${idName} is too`, 'Unset the token or the key.');
  return { id, privateKey };
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
    reader.fault('X402_NETWORK', 'is not an EVM network', `Set it to a CAIP-2 name such as ${DEFAULT_NETWORK}.`);
  }
  const address = reader.text('X402_ASSET') ?? DEFAULT_ASSET;
  if (!/^0x[0-9a-fA-F]{40}$/.test(address)) {
    return reader.fault(
      'X402_ASSET',
      'is not an address',
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
    const fix = 'List address[:status[:validFrom[:validUntil]]], exactly one with the status current.';
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
  const content = reader.file('SIGNING_KEYS_FILE', file, 'Make it with: speechgate keys.');
  if (content === undefined) return undefined;
  try {
    return parseSigningKeys(content, new Date());
  } catch (error) {
    if (!(error instanceof SigningKeysError)) throw error;
    return reader.fault('SIGNING_KEYS_FILE', `names a file that ${error.message}`, error.fix);
  }
}
