import { request } from 'undici';
import type { Challenge } from '../../test/support/payment-signer.ts';
import type { Plan } from '../load/requests.ts';

/** An answer of a target to a request without payment. */
export interface Sample {
  readonly status: number;
  /** Without those that a server of HTTP adds itself. */
  readonly headers: Readonly<Record<string, string>>;
  /** In Base64. */
  readonly body: string;
}

const ADDED = new Set(['connection', 'date', 'keep-alive', 'transfer-encoding']);

/** Asks a target once, without payment. */
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

/** The challenge in an answer; throws when there is none. */
export function challengeIn({ status, headers }: Sample): Challenge {
  const encoded = headers['payment-required'];
  if (status !== 402 || encoded === undefined) throw new Error(`status ${status} instead of a challenge`);
  return JSON.parse(Buffer.from(encoded, 'base64').toString());
}
