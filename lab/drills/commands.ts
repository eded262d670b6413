import { ExactEvmScheme } from '@x402/evm/exact/client';
import { x402Client } from '@x402/fetch';
import { calculateJwkThumbprint, type JWK } from 'jose';
import { privateKeyToAccount } from 'viem/accounts';
import { decodeHeader } from '../../test/support/x402.ts';

export const printedCommands = (output: string): string[] =>
  output
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => /^ {2}(curl|npm run) /.test(line))
    .map((line) => line.trim());

export const fingerprintsIn = (output: string): string[] =>
  [...output.matchAll(/^ +fingerprint +(\S+)$/gm)].map(([, fingerprint]) => fingerprint as string);

/** The thumbprints of the keys in the signed metadata, as a caller calculates them. */
export async function publishedFingerprints(baseUrl: string): Promise<string[]> {
  const response = await fetch(`${baseUrl}/.well-known/x402-service-metadata`);
  const { payload } = (await response.json()) as { payload: { trust: { keys: { publicKeyJwk: JWK }[] } } };
  return Promise.all(payload.trust.keys.map(({ publicKeyJwk }) => calculateJwkThumbprint(publicKeyJwk)));
}

/** A payment for Hello world without an identifier. */
export async function unnamedPayment(baseUrl: string, key: string): Promise<object> {
  const asked = await fetch(`${baseUrl}/x402/tts?text=Hello+world`);
  const wallet = privateKeyToAccount(key as `0x${string}`);
  const client = new x402Client().register('eip155:8453', new ExactEvmScheme(wallet));
  return client.createPaymentPayload(decodeHeader(asked.headers.get('payment-required')));
}
