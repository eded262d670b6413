import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import createClient from 'openapi-fetch';
import { test } from 'tap';
import type { operations, paths } from '../../src/contract/types.ts';
import { wallet as fundedWallet, testChain } from '../support/chain.ts';
import { testCheckout } from '../support/checkout.ts';
import { assertContract, operationAt, operationIds } from '../support/contract.ts';
import { DEPOSIT, mineSteadily } from '../support/deposit.ts';
import { untilJob } from '../support/jobs.ts';
import { loseAnswer } from '../support/lost-answer.ts';
import { domainOf, HELLO, TTS, withCredential } from '../support/prepaid.ts';
import { until } from '../support/until.ts';
import { viemWallet } from '../support/wallet.ts';
import { decodeHeader, encodePayment, sign, startX402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();
const text = 'Hello world';
const UNKNOWN = '00000000-0000-4000-8000-00000000beef';

test('a client that is typed by the contract reaches each operation, its success and an error', { skip }, async (t) => {
  const checkout = await testCheckout(t);
  const gateway = await startX402Gateway(t, chain, { ...checkout.env, FEEDBACK_SECRET: 'f'.repeat(32) });
  gateway.app.worker?.start();
  mineSteadily(t, chain);
  const account = await gateway.fund(500);
  const payer = await fundedWallet(chain.client, BigInt(DEPOSIT));
  const domain = domainOf(gateway.payTo);

  /** The statuses that each operation has answered with. */
  const answered = new Map<string, number[]>();
  const api = createClient<paths>({
    baseUrl: gateway.url,
    fetch: async (request) => {
      const { method, url } = request;
      const response = await fetch(request, { redirect: 'manual' });
      const bytes = Buffer.from(await response.clone().arrayBuffer());
      const path = url.slice(gateway.url.length);
      assertContract(method, path, { status: response.status, headers: response.headers, bytes });
      const { operationId = '' } = operationAt(method, path) ?? {};
      answered.set(operationId, [...(answered.get(operationId) ?? []), response.status]);
      return response;
    },
  });
  const ask = { parseAs: 'text' } as const;
  const wallet = viemWallet();
  const feedback = { message: 'The 402 names no amount.', category: 'bug' } as const;
  const prepaid = async (path: string, body?: object) => {
    const call = body === undefined ? {} : { method: 'POST', json: body };
    const { headers } = await withCredential(payer, domain, path, call);
    return headers as Record<string, string>;
  };
  const job = async () => {
    const params = { query: { async: 'true' }, header: { 'x-credit-account': account } };
    const { data } = await api.POST('/tts', { params, body: { text } });
    assert.ok(data && 'jobId' in data);
    await untilJob(gateway, data.jobId, 'completed');
    return data.jobId;
  };
  const form = { headers: { 'content-type': 'application/x-www-form-urlencoded' }, ...ask };

  /** The statuses that the calls of each operation lead to, the last of them a success. */
  const calls: Record<keyof operations, [status: number, call: () => Promise<unknown>][]> = {
    getHealth: [[200, () => api.GET('/')]],
    getGuide: [[200, () => api.GET('/docs')]],
    getContract: [[200, () => api.GET('/openapi.json')]],
    getServiceMetadata: [[200, () => api.GET('/.well-known/x402-service-metadata')]],
    listModels: [[200, () => api.GET('/tts/models')]],
    listVoices: [
      [400, () => api.GET('/tts/voices', { params: { query: { model: 'none' } } })],
      [200, () => api.GET('/tts/voices', { params: { query: { model: 'provider-a/tts-1' } } })],
    ],
    createFeedbackChallenge: [
      [400, () => api.POST('/feedback/challenge', { body: { wallet: '0x1', ...feedback } })],
      [200, () => api.POST('/feedback/challenge', { body: { wallet: wallet.address, ...feedback } })],
    ],
    submitFeedback: [
      [
        400,
        () => api.POST('/feedback', { body: { wallet: wallet.address, challenge: 'x', signature: '0x', ...feedback } }),
      ],
      [
        201,
        async () => {
          const { data } = await api.POST('/feedback/challenge', { body: { wallet: wallet.address, ...feedback } });
          assert.ok(data);
          const signature = await wallet.sign(data.signingMessage);
          const body = { wallet: wallet.address, challenge: data.challenge, signature, ...feedback };
          return api.POST('/feedback', { body });
        },
      ],
    ],
    createSpeech: [
      [402, () => api.POST('/tts', { body: { text } })],
      [200, () => api.POST('/tts', { params: { header: { 'x-credit-account': account } }, body: { text }, ...ask })],
    ],
    getSpeech: [
      [402, () => api.GET('/tts', { params: { query: { text } } })],
      [200, () => api.GET('/tts', { params: { query: { text }, header: { 'x-credit-account': account } }, ...ask })],
    ],
    getJob: [
      [404, () => api.GET('/tts/jobs/{jobId}', { params: { path: { jobId: UNKNOWN } } })],
      [200, async () => api.GET('/tts/jobs/{jobId}', { params: { path: { jobId: await job() } } })],
    ],
    getJobAudio: [
      [404, () => api.GET('/tts/jobs/{jobId}/audio', { params: { path: { jobId: UNKNOWN } } })],
      [200, async () => api.GET('/tts/jobs/{jobId}/audio', { params: { path: { jobId: await job() } }, ...ask })],
    ],
    showTopUp: [
      [400, () => api.GET('/top-up', { params: { query: { account: 'x'.repeat(101) } }, ...ask })],
      [200, () => api.GET('/top-up', { params: { query: { amount: '500' } }, ...ask })],
    ],
    startTopUp: [
      [400, () => api.POST('/top-up', { body: { amount: 'own', ownAmount: 'much' }, ...form })],
      [303, () => api.POST('/top-up', { body: { amount: '500' }, ...form })],
    ],
    completeTopUp: [
      [400, () => api.GET('/top-up/complete', ask)],
      [
        200,
        async () => {
          const { response } = await api.POST('/top-up', { body: { amount: '500' }, ...form });
          const back = new URL(await checkout.pay(response.headers.get('location') ?? ''));
          const session_id = back.searchParams.get('session_id') ?? '';
          return api.GET('/top-up/complete', { params: { query: { session_id } }, ...ask });
        },
      ],
    ],
    getTopUpStatus: [
      [404, () => api.GET('/top-up/status', { params: { query: { account: UNKNOWN } } })],
      [200, () => api.GET('/top-up/status', { params: { query: { account } } })],
    ],
    getCredits: [
      [404, () => api.GET('/credits/{accountId}', { params: { path: { accountId: UNKNOWN } } })],
      [200, () => api.GET('/credits/{accountId}', { params: { path: { accountId: account } } })],
    ],
    createQuote: [
      [400, () => api.POST('/x402/tts/quote', { body: { textLength: 0, textSha256: '' } })],
      [
        200,
        () => {
          const textSha256 = createHash('sha256').update(text).digest('hex');
          return api.POST('/x402/tts/quote', { body: { textLength: text.length, textSha256 } });
        },
      ],
    ],
    createDeposit: [
      [400, () => api.POST('/x402/deposit', { body: { amountMicroUsd: 1 } })],
      [
        200,
        async () => {
          const body = { amountMicroUsd: DEPOSIT };
          const { response } = await api.POST('/x402/deposit', { body });
          const payment = await sign(payer, decodeHeader(response.headers.get('payment-required')));
          const header = { 'payment-signature': encodePayment(payment) };
          return api.POST('/x402/deposit', { params: { header }, body });
        },
      ],
    ],
    createX402Speech: [
      [402, () => api.POST('/x402/tts', { body: { text } })],
      [
        200,
        async () => {
          const header = await prepaid('/x402/tts', { text });
          return api.POST('/x402/tts', { params: { header }, body: { text }, ...ask });
        },
      ],
    ],
    getX402Speech: [
      [402, () => api.GET('/x402/tts', { params: { query: { text } } })],
      [
        200,
        async () => {
          const header = await prepaid(`/x402/tts?${new URLSearchParams({ text })}`);
          return api.GET('/x402/tts', { params: { query: { text }, header }, ...ask });
        },
      ],
    ],
    getPrepaidAudio: [
      [404, () => api.GET('/x402/tts/audio/{audioId}', { params: { path: { audioId: UNKNOWN } } })],
      [
        200,
        async () => {
          const call = await withCredential(payer, domain, TTS, HELLO);
          await loseAnswer(gateway.url, TTS, call);
          let link: unknown;
          await until(async () => {
            link = (await gateway.call(TTS, call)).json.error.details.audio;
            return link !== undefined;
          });
          const audioId = String(link).split('/').at(-1) ?? '';
          return api.GET('/x402/tts/audio/{audioId}', { params: { path: { audioId } }, ...ask });
        },
      ],
    ],
    getPrepaidAccount: [
      [400, () => api.GET('/x402/accounts/{address}', { params: { path: { address: payer.address } } })],
      [
        200,
        async () => {
          const header = await prepaid(`/x402/accounts/${payer.address}`);
          return api.GET('/x402/accounts/{address}', { params: { path: { address: payer.address }, header } });
        },
      ],
    ],
  };

  assert.deepEqual(Object.keys(calls).sort(), [...operationIds].sort(), 'no operation is left out');
  for (const [operationId, cases] of Object.entries(calls)) {
    await t.test(operationId, async () => {
      for (const [status, call] of cases) {
        await call();
        assert.equal(answered.get(operationId)?.at(-1), status);
      }
    });
  }

  await t.test('the examples of the contract are well-formed requests', async () => {
    const document = (await gateway.call('/openapi.json')).json;
    let sent = 0;
    for (const [path, methods] of Object.entries<Record<string, { requestBody?: Body }>>(document.paths)) {
      for (const [method, { requestBody }] of Object.entries(methods)) {
        for (const [type, { example }] of Object.entries(requestBody?.content ?? {})) {
          if (example === undefined) continue;
          const body = typeof example === 'string' ? example : JSON.stringify(example);
          const reply = await gateway.call(path, {
            method: method.toUpperCase(),
            headers: { 'content-type': type },
            body,
          });
          const { code } = reply.json.error ?? {};
          assert.ok(!/^(INVALID_(REQUEST|JSON)|UNSUPPORTED)/.test(code ?? ''), `${method} ${path}: ${reply.text}`);
          sent += 1;
        }
      }
    }
    assert.ok(sent > 4, `${sent} examples`);
  });
});

interface Body {
  readonly content: Record<string, { readonly example?: unknown }>;
}
