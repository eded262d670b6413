import type { Test } from 'tap';
import { type ErrorCode, statusOf } from '../../src/http/structured-error.ts';
import { testChain, wallet } from './chain.ts';
import { type Call, type Gateway, type GatewayOptions, startGateway } from './gateway.ts';
import { untilJob } from './jobs.ts';
import { fundedWallet, startPrepaidGateway, TTS } from './prepaid.ts';
import { type StubUpstream, testUpstream } from './stub-upstream.ts';
import { challengeOf, sign, startX402Gateway, withPayment } from './x402.ts';

/** What is paid for. */
export const SPEECH: Call = { method: 'POST', json: { text: 'a'.repeat(111) } };
/** Of one request, in micro-USD. */
export const PRICE = 1998n;
/** Micro-USD, unless another one is given: a cent, which pays for 5. */
const BUDGET = 10_000n;
const { chain, skip } = await testChain();

/** What came of a request: of a job, how it ended. */
export interface Spoken {
  readonly status: number;
  readonly mimeType: string | null;
}

/** Somebody who pays for speech by one of the flows, and has a budget for it. */
export interface Payer {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
  readonly path: string;
  /** The request with a payment of its own. */
  pay(): Promise<Call>;
  /** Sends such a request, and waits until it is spoken or refused. */
  ask(call: Call): Promise<Spoken>;
  /** What this payer has paid by now, in micro-USD. */
  paid(): Promise<bigint>;
}

type Adjust = GatewayOptions['adjust'];
/** @param budget in micro-USD, whole cents */
type Start = (t: Test, env?: Record<string, string>, adjust?: Adjust, budget?: bigint) => Promise<Payer>;

const atOnce = (gateway: Gateway, path: string) => async (call: Call) => {
  const { status, headers } = await gateway.call(path, call);
  return { status, mimeType: headers.get('content-type') };
};

const only = (adjust: Adjust) => (adjust ? { adjust } : {});

async function startCard(t: Test, env: Record<string, string> | undefined, options: GatewayOptions, budget: bigint) {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }, options);
  const account = await gateway.fund(Number(budget / 10_000n));
  return {
    ...{ gateway, upstream },
    pay: async () => ({ ...SPEECH, headers: { 'x-credit-account': account } }),
    paid: async () => budget - (await gateway.balance(account)),
  };
}

const card: Start = async (t, env, adjust, budget = BUDGET) => {
  const payer = await startCard(t, env, only(adjust), budget);
  return { ...payer, path: '/tts', ask: atOnce(payer.gateway, '/tts') };
};

const job: Start = async (t, env, adjust, budget = BUDGET) => {
  const path = '/tts?async=true';
  const payer = await startCard(t, env, { ...only(adjust), worker: true }, budget);
  const { gateway } = payer;
  const ask = async (call: Call) => {
    const accepted = await gateway.call(path, call);
    if (accepted.status !== 202) return { status: accepted.status, mimeType: null };
    const { json } = await untilJob(gateway, accepted.json.jobId, 'completed', 'failed');
    if (json.status === 'completed') return { status: 200, mimeType: json.result.mimeType };
    return { status: statusOf[json.error.code as ErrorCode], mimeType: null };
  };
  return { ...payer, path, ask };
};

const prepaid: Start = async (t, env, adjust, budget = BUDGET) => {
  const gateway = await startPrepaidGateway(t, env, only(adjust));
  const { sign, balance } = await fundedWallet(gateway, budget);
  return {
    ...{ gateway, upstream: gateway.upstream, path: TTS, ask: atOnce(gateway, TTS) },
    pay: () => sign(TTS, SPEECH),
    paid: async () => budget - (await balance()),
  };
};

const direct: Start = async (t, env, adjust, budget = BUDGET) => {
  const gateway = await startX402Gateway(t, chain, env, only(adjust));
  const payer = await wallet(chain.client, budget);
  return {
    ...{ gateway, upstream: gateway.upstream, path: TTS, ask: atOnce(gateway, TTS) },
    pay: async () => withPayment(SPEECH, await sign(payer, await challengeOf(gateway, TTS, SPEECH))),
    paid: () => gateway.revenue(),
  };
};

/** The flows, how somebody who pays by one is set up, and why that can't be here. */
export const PAYERS: Readonly<Record<'card' | 'job' | 'prepaid' | 'direct', { start: Start; skip: string | false }>> = {
  card: { start: card, skip: false },
  job: { start: job, skip: false },
  prepaid: { start: prepaid, skip: false },
  direct: { start: direct, skip },
};
