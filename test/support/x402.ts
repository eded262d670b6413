import { randomUUID } from 'node:crypto';
import { x402Client } from '@x402/core/client';
import type { PaymentPayload, PaymentRequired } from '@x402/core/types';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import type { Test } from 'tap';
import type { Hex, LocalAccount } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import type { Config } from '../../src/config/config.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { type TestChain, usesOfAuthorizations } from './chain.ts';
import { testFacilitator } from './facilitator.ts';
import type { FaultyFacilitatorOptions } from './faulty-facilitator.ts';
import { type Call, type Gateway, type Reply, startGateway } from './gateway.ts';
import { testUpstream } from './stub-upstream.ts';

export const QUOTE_SECRET = 'a-quote-secret-of-the-tests-of-32-bytes-or-more';

/** "Hello world" by the default model, in micro-USD. */
export const PRICE = 198n;
export const HELLO: Call = { method: 'POST', json: { text: 'Hello world' } };

export type X402Gateway = Awaited<ReturnType<typeof startX402Gateway>>;

/** A gateway on the test's chain with a facilitator of the official classes, a speech upstream and a payee of its own. */
export async function startX402Gateway(
  t: Test,
  chain: TestChain,
  env: Record<string, string> = {},
  options: {
    databaseUrl?: string;
    worker?: boolean;
    facilitator?: Partial<FaultyFacilitatorOptions>;
    /** Of a deposit, instead of the specification's 120 seconds. */
    confirmationTimeoutMs?: number;
    /** Of the facilitator's settle, instead of 30 seconds. */
    settleTimeoutMs?: number;
    /** Of a transfer for speech, instead of 5 seconds. */
    inclusionTimeoutMs?: number;
    adjust?: (config: Config) => Config;
  } = {},
) {
  const { confirmationTimeoutMs, settleTimeoutMs, inclusionTimeoutMs, adjust = (config) => config } = options;
  const timeouts = {
    ...(confirmationTimeoutMs !== undefined && { confirmationTimeoutMs }),
    ...(settleTimeoutMs !== undefined && { settleTimeoutMs }),
    ...(inclusionTimeoutMs !== undefined && { inclusionTimeoutMs }),
  };
  const upstream = await testUpstream(t);
  const facilitator = await testFacilitator(t, chain, options.facilitator);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const gateway = await startGateway(
    t,
    {
      SPEECH_BASE_URL: upstream.url,
      X402_PAY_TO: payTo,
      X402_FACILITATOR_URL: facilitator.url,
      X402_RPC_URL: chain.rpcUrl,
      QUOTE_SECRET,
      RATE_LIMIT_MAX: '1000000',
      ...env,
    },
    {
      ...(options.databaseUrl !== undefined && { databaseUrl: options.databaseUrl }),
      ...(options.worker !== undefined && { worker: options.worker }),
      adjust: (config) => ({ ...adjust(config), x402: config.x402 && { ...config.x402, ...timeouts } }),
    },
  );
  /** What the payee has got so far, in micro-USDC. */
  const revenue = () => usdcBalance(chain.client, payTo);
  return { ...gateway, payTo, upstream, facilitator, revenue };
}

export const decodeHeader = (header: string | null) => JSON.parse(Buffer.from(header ?? '', 'base64').toString());

/** The challenge of a request without payment. */
export async function challengeOf(gateway: Pick<Gateway, 'call'>, path: string, call: Call): Promise<PaymentRequired> {
  const reply = await gateway.call(path, call);
  if (reply.status !== 402) throw new Error(`expected a challenge, got ${reply.status}: ${reply.text}`);
  return decodeHeader(reply.headers.get('payment-required'));
}

/** The payload that the official client makes of a challenge, with a payment identifier. */
export async function sign(
  payer: LocalAccount,
  challenge: PaymentRequired,
  identifier = `pay_${randomUUID()}`,
): Promise<PaymentPayload> {
  return officialClient(payer, identifier).createPaymentPayload(structuredClone(challenge));
}

/** The official client, with the identifier added through its documented hook. */
export function officialClient(payer: LocalAccount, identifier = `pay_${randomUUID()}`): x402Client {
  return new x402Client()
    .register('eip155:8453', new ExactEvmScheme(payer))
    .onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions ?? {}, identifier);
    });
}

export const encodePayment = (payload: unknown): string => Buffer.from(JSON.stringify(payload)).toString('base64');

/** The request with a payment beside its own headers. */
export const withPayment = (call: Call, payload: unknown): Call => ({
  ...call,
  headers: { ...call.headers, 'payment-signature': typeof payload === 'string' ? payload : encodePayment(payload) },
});

/** Challenge, signature and the paid request; tells the paid call too, for repetitions. */
export async function payFor(
  gateway: Pick<Gateway, 'call'>,
  payer: LocalAccount,
  call: Call = HELLO,
  path = '/x402/tts',
): Promise<{ reply: Reply; paid: Call; payload: PaymentPayload }> {
  const payload = await sign(payer, await challengeOf(gateway, path, call));
  const paid = withPayment(call, payload);
  return { reply: await gateway.call(path, paid), paid, payload };
}

export const nonceOf = (payload: PaymentPayload): Hex => (payload.payload.authorization as { nonce: Hex }).nonce;

/** How often this payer has really paid. */
export const timesPaid = async (chain: TestChain, payer: LocalAccount): Promise<number> =>
  (await usesOfAuthorizations(chain.client, payer.address)).length;
