import { request } from 'undici';
import type { Challenge } from '../../signers/payment-signer.ts';
import type { Plan } from '../load/requests.ts';

export interface Sample {
  readonly status: number;
  /** Without headers that an HTTP server adds itself. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const ADDED = new Set(['connection', 'date', 'keep-alive', 'transfer-encoding']);

export async function takeSample(port: number, { path, body, headers }: Plan): Promise<Sample> {
  const answer = await request(`http://127.0.0.1:${port}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body,
  });
  const kept = Object.entries(answer.headers).filter(([name]) => !ADDED.has(name));
  return {
    status: answer.statusCode,
    headers: Object.fromEntries(kept.map(([name, value]) => [name, String(value)])),
    body: Buffer.from(await answer.body.arrayBuffer()).toString('base64'),
  };
}

/** @throws when the response contains no challenge */
export function challengeIn({ status, headers }: Sample): Challenge {
  const encoded = headers['payment-required'];
  if (status !== 402 || encoded === undefined) throw new Error(`status ${status} instead of a challenge`);
  return JSON.parse(Buffer.from(encoded, 'base64').toString());
}
