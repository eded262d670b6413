import type { Test } from 'tap';
import { type Call, type Gateway, startGateway } from '../support/gateway.ts';
import { type StubUpstream, testUpstream } from '../support/stub-upstream.ts';

export interface Bench {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
}

export async function bench(t: Test, env: Record<string, string> = {}): Promise<Bench> {
  const upstream = await testUpstream(t);
  return { upstream, gateway: await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }) };
}

export const say = (account: string | undefined, body: object = { text: 'Hello world' }): Call => ({
  method: 'POST',
  json: body,
  headers: account === undefined ? {} : { 'x-credit-account': account },
});
