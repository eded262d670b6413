import { createPublicKey, verify } from 'node:crypto';
import { canonicalize } from '../lib/canonical-json.ts';
import { formatUsd } from '../lib/money.ts';
import type { Config } from '../settings/config.ts';
import { priceMicroUsd } from '../speech/price.ts';
import { publicKeyJwk, type SigningKey } from '../x402/signing-keys.ts';
import { member } from './exchange.ts';

/** Whether a document is metadata whose signature verifies under one of our keys. */
export function isSignedBy(document: unknown, keys: readonly SigningKey[]): boolean {
  const payload = member(document, 'payload');
  const value = member(document, 'signature', 'value');
  const key = keys.find(({ keyId }) => keyId === member(document, 'signature', 'keyId'));
  if (!key || typeof payload !== 'object' || payload === null || typeof value !== 'string') return false;
  const { kty, crv, x, y } = publicKeyJwk(key);
  const publicKey = createPublicKey({ key: { kty, crv, x, y }, format: 'jwk' });
  const signed = Buffer.from(canonicalize(payload));
  return verify('sha256', signed, { key: publicKey, dsaEncoding: 'ieee-p1363' }, Buffer.from(value, 'base64url'));
}

/** The settings of ours that metadata contradicts, by their names. */
export function differences(document: unknown, { baseUrl, x402, catalog, signingKeys }: Config): string[] {
  const told = (...path: readonly string[]) => member(document, 'payload', ...path);
  const list = (value: unknown, ...names: readonly string[]) =>
    Array.isArray(value) ? value.map((entry) => names.map((name) => member(entry, name)).join(' ')).join(', ') : '';
  const payees = x402?.payees.map(({ address, status }) => `${address} ${status}`).join(', ');
  const keys = signingKeys?.map(({ keyId, status }) => `${keyId} ${status}`).join(', ');
  const models = catalog.models
    .map(
      ({ id, maxInputCharacters: most, ratePicoUsd }) => `${id} ${most} ${formatUsd(priceMicroUsd(most, ratePicoUsd))}`,
    )
    .join(', ');
  const compared: readonly (readonly [setting: string, here: unknown, there: unknown])[] = [
    ['BASE_URL', baseUrl, told('service', 'origin')],
    ['X402_NETWORK', x402?.asset.network, told('payment', 'network')],
    ['X402_ASSET', x402?.asset.address, told('payment', 'asset', 'address')],
    ['X402_ASSET_NAME', x402?.asset.name, told('payment', 'asset', 'name')],
    ['X402_PAY_TO', payees, list(told('payment', 'payees'), 'address', 'status')],
    ['SIGNING_KEYS_FILE', keys, list(told('trust', 'keys'), 'keyId', 'status')],
    ['CATALOG_FILE', models, list(told('pricing', 'models'), 'id', 'maxCharactersPerRequest', 'maxChargeUsd')],
  ];
  return compared.filter(([, here, there]) => here !== there).map(([setting]) => setting);
}
