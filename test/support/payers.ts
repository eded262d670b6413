import type { Test } from 'tap';
import { testChain, wallet } from './chain.ts';
import { type Call, type Gateway, type GatewayOptions, startGateway } from './gateway.ts';
import { depositor, startPrepaidGateway, TTS } from './prepaid.ts';
import { type StubUpstream, startStubUpstream } from './stub-upstream.ts';
import { challengeOf, sign, startX402Gateway, withPayment } from './x402.ts';

/** What is paid for. */
export const SPEECH: Call = { method: 'POST', json: { text: 'a'.repeat(111) } };
/** Of one request, in micro-USD. */
export const PRICE = 1998n;
/** Micro-USD: a cent, which pays for 5. */
const BUDGET = 10_000n;
const { chain, skip } = await testChain();

/** Somebody who pays for speech by one of the flows, and has a cent. */
export interface Payer {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
  readonly path: string;
  /** The request with a payment of its own. */
  pay(): Promise<Call>;
  /** What this payer has paid by now, in micro-USD. */
  paid(): Promise<bigint>;
}

type Adjust = GatewayOptions['adjust'];
type Start = (t: Test, env?: Record<string, string>, adjust?: Adjust) => Promise<Payer>;

const only = (adjust: Adjust) => (adjust ? { adjust } : {});

const card: Start = async (t, env, adjust) => {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }, only(adjust));
  const account = await gateway.fund(Number(BUDGET / 10_000n));
  return {
    ...{ gateway, upstream, path: '/tts' },
    pay: async () => ({ ...SPEECH, headers: { 'x-credit-account': account } }),
    paid: async () => BUDGET - (await gateway.balance(account)),
  };
};

const prepaid: Start = async (t, env, adjust) => {
  const gateway = await startPrepaidGateway(t, env, only(adjust));
  const { sign, balance } = await depositor(gateway, BUDGET);
  return {
    ...{ gateway, upstream: gateway.upstream, path: TTS },
    pay: () => sign(TTS, SPEECH),
    paid: async () => BUDGET - (await balance()),
  };
};

const direct: Start = async (t, env, adjust) => {
  const gateway = await startX402Gateway(t, chain, env, only(adjust));
  const payer = await wallet(chain.client, BUDGET);
  return {
    ...{ gateway, upstream: gateway.upstream, path: TTS },
    pay: async () => withPayment(SPEECH, await sign(payer, await challengeOf(gateway, TTS, SPEECH))),
    paid: () => gateway.revenue(),
  };
};

/** The flows, how somebody who pays by one is set up, and why that can't be here. */
export const PAYERS: Readonly<Record<'card' | 'prepaid' | 'direct', { start: Start; skip: string | false }>> = {
  card: { start: card, skip: false },
  prepaid: { start: prepaid, skip: false },
  direct: { start: direct, skip },
};
