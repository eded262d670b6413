import { sign } from 'node:crypto';
import type { PaymentRequired } from '@x402/core/types';
import type { Test } from 'tap';
import type { SigningKey } from '../../src/config/signing-keys.ts';
import type { SignedServiceMetadata } from '../../src/contract/types.ts';
import { canonicalize } from '../../src/lib/canonical-json.ts';
import { serve } from './listening.ts';

export interface ProxiedResponse {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tampers are upstream of whatever was answered.
  json: any;
  /** Instead of the JSON, or of what was answered. */
  raw?: string | Buffer;
}

/** Changes an answer in its place; the headers are those of the request. */
export type Tamper = (
  proxied: ProxiedResponse,
  path: string,
  headers: Readonly<Record<string, string>>,
) => void | Promise<void>;

export interface TamperingProxy {
  readonly url: string;
  /** Where what it asks is answered truly. */
  target: string;
  /** How the next answers are changed; undefined: not at all. */
  tamper: Tamper | undefined;
  /** Paths of the requests, in their order. */
  readonly requestedPaths: string[];
}

/** Stands between a client and a service, and changes the JSON of its answers. */
export async function startTamperingProxy(t: Test): Promise<TamperingProxy> {
  const url = await serve(t, async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const path = request.url as string;
    proxy.requestedPaths.push(path);
    const { host, connection, ...headers } = request.headers as Record<string, string>;
    const body = chunks.length > 0 ? { body: Buffer.concat(chunks) } : {};
    const upstream = await fetch(proxy.target + path, { method: request.method as string, headers, ...body });
    const bytes = Buffer.from(await upstream.arrayBuffer());
    const isJson = upstream.headers.get('content-type')?.startsWith('application/json');
    const proxied: ProxiedResponse = {
      status: upstream.status,
      headers: new Headers(upstream.headers),
      json: isJson && JSON.parse(`${bytes}`),
    };
    await proxy.tamper?.(proxied, path, headers);
    const answer = Buffer.from(proxied.raw ?? (proxied.json ? JSON.stringify(proxied.json) : bytes));
    for (const name of ['transfer-encoding', 'connection', 'keep-alive']) proxied.headers.delete(name);
    proxied.headers.set('content-length', String(answer.length));
    response.writeHead(proxied.status, Object.fromEntries(proxied.headers)).end(answer);
  });
  const proxy: TamperingProxy = { url, target: url, tamper: undefined, requestedPaths: [] };
  return proxy;
}

export type Payload = SignedServiceMetadata['payload'];

/** Changes the metadata; what comes of it is signed again when a key is given. */
export const ofMetadata =
  (change: (document: SignedServiceMetadata) => object, key?: SigningKey): Tamper =>
  (proxied, path) => {
    if (path !== '/.well-known/x402-service-metadata') return;
    const document = change(proxied.json) as SignedServiceMetadata;
    proxied.json = key ? { ...document, signature: signatureOf(document.payload, key) } : document;
  };

/** The value with another one at a path, such as `accepts.0.payTo`. */
export function changed<T extends object>(value: T, path: string, to: unknown): T {
  const names = path.split('.');
  const last = names.pop() as string;
  // biome-ignore lint/suspicious/noExplicitAny: the path leads anywhere.
  const place = names.reduce((within: any, name) => within[name], value);
  if (to === undefined) delete place[last];
  else place[last] = to;
  return value;
}

/** The signature of a payload as the service makes it. */
export const signatureOf = (payload: object, key: SigningKey) => ({
  algorithm: 'ES256',
  keyId: key.keyId,
  encoding: 'base64url-ieee-p1363',
  value: sign('sha256', Buffer.from(canonicalize(payload)), {
    key: key.privateKey,
    dsaEncoding: 'ieee-p1363',
  }).toString('base64url'),
});

/** Changes the challenge of a 402, in its header and in its body. */
export const ofChallenge =
  (change: (challenge: PaymentRequired) => object): Tamper =>
  (proxied) => {
    const header = proxied.headers.get('payment-required');
    if (proxied.status !== 402 || header === null) return;
    const challenge = change(JSON.parse(`${Buffer.from(header, 'base64')}`));
    proxied.headers.set('payment-required', Buffer.from(JSON.stringify(challenge)).toString('base64'));
    proxied.json.error.details = challenge;
  };
