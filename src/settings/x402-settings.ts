import { readFileSync } from 'node:fs';
import { getAddress } from 'viem';
import type { NodeUrls } from '../x402/chain.ts';
import { type Asset, DEFAULT_ASSET, DEFAULT_NETWORK } from '../x402/network.ts';
import { type Payee, PayeeError, parsePayees } from '../x402/payees.ts';
import { PREPAID } from '../x402/prepaid-terms.ts';
import { parseSigningKeys, type SigningKey, SigningKeysError } from '../x402/signing-keys.ts';
import type { SettingsReader } from './settings-reader.ts';

export interface X402Config {
  readonly facilitatorUrl: string;
  readonly facilitatorToken: string | undefined;
  readonly payees: readonly Payee[];
  readonly asset: Asset;
  /** The status of the answer to a request for speech that says nothing at all (R59). */
  readonly probeAnswer: 400 | 402;
  /** Nodes of the chain. Undefined while direct payment and deposits are off (R58). */
  readonly rpcUrls: NodeUrls | undefined;
  /** How long a deposit's request waits for the confirmations of its transfer (specification, "Limits"). */
  readonly confirmationTimeoutMs: number;
}

export interface QuoteConfig {
  /** The first one signs. */
  readonly secrets: readonly [string, ...string[]];
  readonly ttlSeconds: number;
}

/** Undefined while payment under x402 is off. */
export function readX402(reader: SettingsReader): X402Config | undefined {
  const payTo = reader.text('X402_PAY_TO');
  const facilitatorSetting = reader.text('X402_FACILITATOR_URL');
  const facilitator = reader.httpUrl('X402_FACILITATOR_URL', facilitatorSetting, 'https://facilitator.example/x402');
  const facilitatorToken = reader.text('X402_FACILITATOR_AUTH');
  const rpcUrls = readNodes(reader);
  const asset = readAsset(reader);
  const probeAnswer = reader.text('X402_PROBE_ANSWER') ?? '400';
  if (probeAnswer !== '400' && probeAnswer !== '402') {
    const fix = 'Set it to 402 to be listed by directories, or unset it.';
    reader.fault('X402_PROBE_ANSWER', 'is neither 400 nor 402', fix);
  }
  const payees = payTo === undefined ? undefined : readPayees(reader, payTo);
  if (payTo !== undefined && facilitatorSetting === undefined) {
    const fix = 'Set it to the base of the facilitator.';
    reader.fault('X402_FACILITATOR_URL', 'is not set, but X402_PAY_TO is', fix);
  }
  if (payTo === undefined && facilitatorSetting !== undefined) {
    const fix = 'Set it to the address that is to be paid.';
    reader.fault('X402_PAY_TO', 'is not set, but X402_FACILITATOR_URL is', fix);
  }
  if (facilitatorToken && facilitatorSetting === undefined) {
    reader.fault('X402_FACILITATOR_URL', 'is not set, but X402_FACILITATOR_AUTH is', 'Set it, or unset the token.');
  }
  if (!facilitator || !payees || !asset) return undefined;
  const confirmationTimeoutMs = PREPAID.depositTimeoutSeconds * 1000;
  return {
    facilitatorUrl: facilitator.href,
    ...{ facilitatorToken, payees, asset, rpcUrls, confirmationTimeoutMs },
    probeAnswer: probeAnswer === '402' ? 402 : 400,
  };
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
    reader.fault('X402_NETWORK', 'names no EVM network', `Set it to a CAIP-2 name such as ${DEFAULT_NETWORK}.`);
  }
  const address = reader.text('X402_ASSET') ?? DEFAULT_ASSET;
  if (!/^0x[0-9a-fA-F]{40}$/.test(address)) {
    return reader.fault('X402_ASSET', 'is no address', `Set it to the address of the token, such as ${DEFAULT_ASSET}.`);
  }
  return {
    network: network as Asset['network'],
    chainId,
    address: getAddress(address.toLowerCase()),
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

/** Undefined while there are no quotes. */
export function readQuotes(reader: SettingsReader): QuoteConfig | undefined {
  const [first, ...rest] = reader.secrets('QUOTE_SECRET');
  const ttlSeconds = reader.integer('QUOTE_TTL_SECONDS', 1, 86_400) ?? 300;
  return first === undefined ? undefined : { secrets: [first, ...rest], ttlSeconds };
}

/** The keys of the signed metadata; undefined without it. */
export function readSigningKeys(reader: SettingsReader): readonly SigningKey[] | undefined {
  const file = reader.text('SIGNING_KEYS_FILE');
  if (file === undefined) return undefined;
  const fix = 'Make or rotate the file with: npm run keys.';
  let content: string;
  try {
    content = readFileSync(file, 'utf8');
  } catch {
    return reader.fault('SIGNING_KEYS_FILE', "names a file that can't be read", fix);
  }
  try {
    return parseSigningKeys(content, new Date());
  } catch (error) {
    if (!(error instanceof SigningKeysError)) throw error;
    return reader.fault('SIGNING_KEYS_FILE', `names a file that ${error.message}`, fix);
  }
}
