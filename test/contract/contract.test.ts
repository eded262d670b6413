import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import createClient from 'openapi-fetch';
import Stripe from 'stripe';
import { test } from 'tap';
import { parse } from 'yaml';
import { MIN_TOP_UP_CENTS } from '../../src/config/card-settings.ts';
import {
  ASYNC_TEXT_LENGTH,
  MAX_NAME_LENGTH,
  MAX_QUERY_TEXT_LENGTH,
  MAX_TEXT_LENGTH,
  SPEED,
} from '../../src/config/speech-limits.ts';
import type { operations, paths } from '../../src/contract/types.ts';
import { MAX_PER_DAY } from '../../src/feedback/submit.ts';
import { guide } from '../../src/http/routes/guide.ts';
import { depositResource, identifierExtension, speechResource } from '../../src/payments/x402/challenge.ts';
import { REPLAY_WINDOW_SECONDS } from '../../src/payments/x402/payment.ts';
import { PREPAID } from '../../src/payments/x402/prepaid-terms.ts';
import { MAX_TOKEN_LENGTH } from '../../src/speech/store/link-token.ts';
import { wallet as fundedWallet, testChain } from '../support/chain.ts';
import { testCheckout } from '../support/checkout.ts';
import { API_POLICY, assertContract, EDGE_HEADERS, operationAt, operationIds } from '../support/contract.ts';
import { DEPOSIT, mineSteadily } from '../support/deposit.ts';
import { untilJob } from '../support/jobs.ts';
import { longCatalog, longText } from '../support/long-texts.ts';
import { loseAnswer } from '../support/lost-answer.ts';
import { domainOf, HELLO, TTS, withCredential } from '../support/prepaid.ts';
import { projectFile } from '../support/project.ts';
import { until } from '../support/until.ts';
import { makeSamples } from '../support/voice-samples.ts';
import { viemWallet } from '../support/wallet.ts';
import { decodeHeader, encodePayment, sign, startX402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();
const { components, paths: declaredPaths } = parse(await readFile(projectFile('openapi.yaml'), 'utf8'));

interface EdgeHeader {
  readonly schema: { readonly enum?: string[]; readonly anyOf?: { readonly enum?: string[] }[] };
}

const HEADERS: Record<string, string> = {
  ...EDGE_HEADERS,
  'content-security-policy': API_POLICY,
  'x-trace-id': '7c9e6679-7425-40de-944b-e07fc1f90ae7',
  'content-type': 'application/json; charset=utf-8',
};
const NOT_FOUND = { error: { code: 'NOT_FOUND', message: 'There is nothing here.', details: null } };

const answer = (headers: Record<string, string> = {}, body: unknown = NOT_FOUND) => ({
  status: 404,
  headers: new Headers({ ...HEADERS, ...headers }),
  bytes: Buffer.from(JSON.stringify(body)),
});

test('assertContract accepts what is declared, and nothing else', async (t) => {
  const says = (given: ReturnType<typeof answer>, message: RegExp) =>
    t.throws(() => assertContract('GET', '/nowhere', given), message);
  assertContract('GET', '/nowhere', answer({ date: 'Thu, 01 Jan 1970 00:00:00 GMT', connection: 'keep-alive' }));
  says(answer({ 'strict-transport-security': 'max-age=1' }), /strict-transport-security/);
  says(answer({ 'content-security-policy': `${API_POLICY}; script-src *` }), /its policy/);
  says(answer({ 'x-trace-id': '7' }), /x-trace-id/);
  says(answer({ 'x-foo': '1' }), /'x-foo'/);
  says(answer({ 'retry-after': '1' }), /'retry-after'/);
  says({ ...answer(), status: 418 }, /418, which the contract/);
  says(answer({ 'content-type': 'audio/ogg' }), /audio\/ogg/);
  says(answer({}, { error: { ...NOT_FOUND.error, code: 'OTHER' } }), /OTHER/);
});

test('the contract declares the values of the common response headers', async (t) => {
  const contract = parse(await readFile('openapi.yaml', 'utf8'));
  const { 'x-trace-id': _traceId, ...declared } = contract['x-edge-headers'].headers;
  t.strictSame(
    Object.fromEntries(
      Object.entries(declared as Record<string, EdgeHeader>).map(([name, { schema }]) => [
        name,
        (schema.enum ?? schema.anyOf?.[0]?.enum)?.[0],
      ]),
    ),
    { ...EDGE_HEADERS, 'content-security-policy': API_POLICY },
  );
});

const text = 'Hello world';
const WEBHOOK_SECRET = 'whsec_of_the_contract_test';
const UNKNOWN = '00000000-0000-4000-8000-00000000beef';

test('a typed client reaches each operation with a success and an error', { skip }, async (t) => {
  const checkout = await testCheckout(t);
  const env = {
    ...checkout.env,
    STRIPE_WEBHOOK_SECRET: WEBHOOK_SECRET,
    FEEDBACK_SECRET: 'f'.repeat(32),
    CATALOG_FILE: await longCatalog(t, 100),
  };
  const gateway = await startX402Gateway(t, chain, env);
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
  const job = async (spoken = text) => {
    const params = { query: { async: 'true' }, header: { 'x-credit-account': account } };
    const { data } = await api.POST('/tts', { params, body: { text: spoken } });
    assert.ok(data && 'jobId' in data);
    await untilJob(gateway, data.jobId, 'completed');
    return data.jobId;
  };
  const form = { headers: { 'content-type': 'application/x-www-form-urlencoded' }, ...ask };

  /** The statuses that the calls of each operation lead to. */
  const calls: Record<keyof operations, Record<number, () => Promise<unknown>>> = {
    getHealth: { 200: () => api.GET('/') },
    getGuide: { 200: () => api.GET('/docs') },
    getAgentNotes: { 200: () => api.GET('/llms.txt', ask) },
    getContract: { 200: () => api.GET('/openapi.json') },
    getServiceMetadata: { 200: () => api.GET('/.well-known/x402-service-metadata') },
    listModels: { 200: () => api.GET('/tts/models') },
    listVoices: {
      400: () => api.GET('/tts/voices', { params: { query: { model: 'none' } } }),
      200: () => api.GET('/tts/voices', { params: { query: { model: 'provider-a/tts-1' } } }),
    },
    getVoiceSample: {
      404: () => api.GET('/tts/voices/{voice}/sample', { params: { path: { voice: 'none' } } }),
      200: async () => {
        await makeSamples(gateway);
        return api.GET('/tts/voices/{voice}/sample', { params: { path: { voice: 'provider-a_alloy' } }, ...ask });
      },
    },
    createFeedbackChallenge: {
      400: () => api.POST('/feedback/challenge', { body: { wallet: '0x1', ...feedback } }),
      200: () => api.POST('/feedback/challenge', { body: { wallet: wallet.address, ...feedback } }),
    },
    submitFeedback: {
      400: () =>
        api.POST('/feedback', { body: { wallet: wallet.address, challenge: 'x', signature: '0x', ...feedback } }),
      201: async () => {
        const { data } = await api.POST('/feedback/challenge', { body: { wallet: wallet.address, ...feedback } });
        assert.ok(data);
        const signature = await wallet.sign(data.signingMessage);
        const body = { wallet: wallet.address, challenge: data.challenge, signature, ...feedback };
        return api.POST('/feedback', { body });
      },
    },
    createSpeech: {
      402: () => api.POST('/tts', { body: { text } }),
      200: () => api.POST('/tts', { params: { header: { 'x-credit-account': account } }, body: { text }, ...ask }),
    },
    getSpeech: {
      402: () => api.GET('/tts', { params: { query: { text } } }),
      200: () => api.GET('/tts', { params: { query: { text }, header: { 'x-credit-account': account } }, ...ask }),
    },
    getJob: {
      404: () => api.GET('/tts/jobs/{jobId}', { params: { path: { jobId: UNKNOWN } } }),
      200: async () => api.GET('/tts/jobs/{jobId}', { params: { path: { jobId: await job() } } }),
    },
    getJobAudio: {
      404: () => api.GET('/tts/jobs/{jobId}/audio', { params: { path: { jobId: UNKNOWN } } }),
      200: async () => api.GET('/tts/jobs/{jobId}/audio', { params: { path: { jobId: await job() } }, ...ask }),
    },
    getJobCaptions: {
      404: async () => api.GET('/tts/jobs/{jobId}/captions', { params: { path: { jobId: await job() } } }),
      200: async () => {
        const path = { jobId: await job(longText(200)) };
        return api.GET('/tts/jobs/{jobId}/captions', { params: { path }, ...ask });
      },
    },
    showTopUp: {
      400: () => api.GET('/top-up', { params: { query: { account: 'x'.repeat(101) } }, ...ask }),
      200: () => api.GET('/top-up', { params: { query: { amount: '500' } }, ...ask }),
    },
    startTopUp: {
      400: () => api.POST('/top-up', { body: { amount: 'own', ownAmount: 'much' }, ...form }),
      303: () => api.POST('/top-up', { body: { amount: '500' }, ...form }),
    },
    completeTopUp: {
      400: () => api.GET('/top-up/complete', ask),
      200: async () => {
        const { response } = await api.POST('/top-up', { body: { amount: '500' }, ...form });
        const back = new URL(await checkout.pay(response.headers.get('location') ?? ''));
        const session_id = back.searchParams.get('session_id') ?? '';
        return api.GET('/top-up/complete', { params: { query: { session_id } }, ...ask });
      },
    },
    getTopUpStatus: {
      404: () => api.GET('/top-up/status', { params: { query: { account: UNKNOWN } } }),
      200: () => api.GET('/top-up/status', { params: { query: { account } } }),
    },
    getCredits: {
      404: () => api.GET('/credits/{accountId}', { params: { path: { accountId: UNKNOWN } } }),
      200: () => api.GET('/credits/{accountId}', { params: { path: { accountId: account } } }),
    },
    showAccountForm: { 200: () => api.GET('/account', ask) },
    showAccount: {
      404: () => api.POST('/account', { body: { accountId: UNKNOWN }, ...form }),
      200: () => api.POST('/account', { body: { accountId: account }, ...form }),
    },
    receiveStripeEvent: {
      400: () => {
        const params = { header: { 'stripe-signature': 't=1,v1=forged' } };
        return api.POST('/webhooks/stripe', { params, body: { type: 'checkout.session.completed' } });
      },
      204: () => {
        const event = { object: 'event', type: 'invoice.paid', data: { object: {} } };
        const payload = JSON.stringify(event);
        const signature = Stripe.webhooks.generateTestHeaderString({ payload, secret: WEBHOOK_SECRET });
        return api.POST('/webhooks/stripe', { params: { header: { 'stripe-signature': signature } }, body: event });
      },
    },
    createQuote: {
      400: () => api.POST('/x402/tts/quote', { body: { textLength: 0, textSha256: '' } }),
      200: () => {
        const textSha256 = createHash('sha256').update(text).digest('hex');
        return api.POST('/x402/tts/quote', { body: { textLength: text.length, textSha256 } });
      },
    },
    createDeposit: {
      400: () => api.POST('/x402/deposit', { body: { amountMicroUsd: 1 } }),
      200: async () => {
        const body = { amountMicroUsd: DEPOSIT };
        const { response } = await api.POST('/x402/deposit', { body });
        const payment = await sign(payer, decodeHeader(response.headers.get('payment-required')));
        const header = { 'payment-signature': encodePayment(payment) };
        return api.POST('/x402/deposit', { params: { header }, body });
      },
    },
    createX402Speech: {
      402: () => api.POST('/x402/tts', { body: { text } }),
      200: async () => {
        const header = await prepaid('/x402/tts', { text });
        return api.POST('/x402/tts', { params: { header }, body: { text }, ...ask });
      },
    },
    getX402Speech: {
      402: () => api.GET('/x402/tts', { params: { query: { text } } }),
      200: async () => {
        const header = await prepaid(`/x402/tts?${new URLSearchParams({ text })}`);
        return api.GET('/x402/tts', { params: { query: { text }, header }, ...ask });
      },
    },
    getPrepaidAudio: {
      404: () => api.GET('/x402/tts/audio/{audioId}', { params: { path: { audioId: UNKNOWN } } }),
      200: async () => {
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
    },
    getPrepaidAccount: {
      400: () => api.GET('/x402/accounts/{address}', { params: { path: { address: payer.address } } }),
      200: async () => {
        const header = await prepaid(`/x402/accounts/${payer.address}`);
        return api.GET('/x402/accounts/{address}', { params: { path: { address: payer.address }, header } });
      },
    },
  };

  t.strictSame(Object.keys(calls).sort(), [...operationIds].sort(), 'no operation is left out');
  for (const [operationId, cases] of Object.entries(calls)) {
    await t.test(operationId, async (t) => {
      for (const [status, call] of Object.entries(cases)) {
        await call();
        t.equal(answered.get(operationId)?.at(-1), Number(status));
      }
    });
  }

  await t.test('the examples of the contract are well-formed requests', async (t) => {
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
          t.ok(!/^(INVALID_(REQUEST|JSON)|UNSUPPORTED)/.test(code ?? ''), `${method} ${path}: ${reply.text}`);
          sent += 1;
        }
      }
    }
    t.ok(sent > 4, `${sent} examples`);
  });
});

interface Body {
  readonly content: Record<string, { readonly example?: unknown }>;
}

// The limits that the contract declares are those that the guide, the challenges and the metadata publish.

const { schemas, parameters, headers } = components;
const { limits, agentGuide } = guide({
  serviceName: 'speechgate',
  baseUrl: 'https://speech.example',
  contract: { openapi: '3.0.3', info: { title: 'speechgate', version: '2' }, paths: {} },
  speechTimeoutMs: 45_000,
});

/** How a challenge says that its resource is called. */
const calledBy = ({ extensions }: ReturnType<typeof speechResource>) =>
  // biome-ignore lint/suspicious/noExplicitAny: a JSON schema, held against another one.
  (extensions.bazaar as any).schema.properties.input.properties;

test('the contract declares the published lengths of texts and names', async (t) => {
  const { text } = schemas.TtsRequest.properties;
  const inText = declaredPaths['/tts'].post.requestBody.content['text/plain'].schema;
  for (const { maxLength } of [text, inText, schemas.QuotedTtsRequest.properties.text]) {
    t.equal(maxLength, MAX_TEXT_LENGTH);
  }
  t.equal(parameters.Text.schema.maxLength, MAX_QUERY_TEXT_LENGTH);
  t.equal(schemas.ModelId.maxLength, MAX_NAME_LENGTH);
  t.equal(schemas.VoiceId.maxLength, MAX_NAME_LENGTH);
  t.strictSame([limits.maxTextLength, limits.getTtsMaxTextLength], [MAX_TEXT_LENGTH, MAX_QUERY_TEXT_LENGTH]);
});

test('the descriptions in the contract state the published limits', async (t) => {
  t.ok(schemas.TtsRequest.properties.text.description.includes(`1 to ${MAX_TEXT_LENGTH} characters`));
  t.ok(parameters.Text.description.includes(`1 to ${MAX_QUERY_TEXT_LENGTH} characters`));
  const { description } = declaredPaths['/x402/tts'].post;
  t.ok(description.replaceAll(/\s+/g, ' ').includes(`within ${REPLAY_WINDOW_SECONDS} seconds`));
  t.ok(parameters.PrepaidExpiry.description.includes(`at most ${PREPAID.signatureTtlSeconds} seconds from now`));
  t.ok(parameters.JobSig.description.includes(`1 to ${MAX_TOKEN_LENGTH} characters`));
});

test('the contract declares the published range and default of speed', async (t) => {
  const { minimum, maximum, default: usual } = schemas.Speed;
  t.strictSame({ min: minimum, max: maximum, default: usual }, SPEED);
  t.strictSame(limits.speed, SPEED);
});

test('the challenges describe requests as the contract does', async (t) => {
  const speech = calledBy(speechResource('https://speech.example', 'speechgate', 'POST')).body.properties;
  for (const [name, schema] of Object.entries({ model: schemas.ModelId, voice: schemas.VoiceId })) {
    const { minLength, maxLength } = schema;
    t.strictSame({ ...speech[name], minLength, maxLength }, speech[name], name);
  }
  t.equal(speech.text.maxLength, MAX_TEXT_LENGTH);
  const { queryParams } = calledBy(speechResource('https://speech.example', 'speechgate', 'GET'));
  t.equal(queryParams.properties.text.maxLength, MAX_QUERY_TEXT_LENGTH);
  const { type, minimum, maximum } = schemas.X402DepositRequest.properties.amountMicroUsd;
  const deposit = calledBy(depositResource('https://speech.example', 'speechgate')).body.properties;
  t.strictSame(deposit.amountMicroUsd, { type, minimum, maximum });
});

test('the contract declares the limits of identifiers, nonces and deposits', async (t) => {
  const { minLength, maxLength } = headers.PaymentIdentifier.schema;
  const { id } = identifierExtension().schema.properties as { id: object };
  t.strictSame({ ...id, minLength, maxLength }, id);
  t.ok(parameters.PaymentSignature.description.replaceAll(/\s+/g, ' ').includes(`${minLength} to ${maxLength} c`));
  t.equal(parameters.PrepaidNonce.schema.pattern, `^[!-~]{1,${PREPAID.maxNonceLength}}$`);
  const { minimum, maximum } = schemas.X402DepositRequest.properties.amountMicroUsd;
  t.strictSame([PREPAID.minDepositMicroUsd, PREPAID.maxDepositMicroUsd], [minimum, maximum]);
});

test('the guide publishes the other limits of the contract', async (t) => {
  const { minDepositMicroUsd, maxDepositMicroUsd, maxTextLength, getTtsMaxTextLength, speed, characters, ...others } =
    limits;
  t.strictSame(others, {
    speechTimeoutSeconds: 45,
    asynchronousTextLength: ASYNC_TEXT_LENGTH,
    idempotencyKeyMaxLength: parameters.IdempotencyKey.schema.maxLength,
    minTopUpCents: MIN_TOP_UP_CENTS,
    depositConfirmations: PREPAID.depositConfirmations,
    depositTimeoutSeconds: PREPAID.depositTimeoutSeconds,
    prepaidSignatureLifetimeSeconds: PREPAID.signatureTtlSeconds,
    prepaidNonceMaxLength: PREPAID.maxNonceLength,
    feedbackMessageMaxLength: schemas.FeedbackMessage.maxLength,
    feedbackBodyMaxBytes: declaredPaths['/feedback'].post.requestBody['x-body-limit'],
    feedbackPerWalletIn24Hours: MAX_PER_DAY,
  });
  t.ok(agentGuide.feedback[0]?.includes(`one of ${schemas.FeedbackCategory.enum.join(', ')}.`));
});

interface Response {
  readonly $ref?: string;
  readonly description?: string;
}
interface Contract {
  readonly paths: Record<string, Record<string, { operationId?: string; responses?: Record<string, Response> }>>;
  readonly components: { readonly responses: Record<string, Response> };
}

test('R62: no generic error promises anything about money', async (t) => {
  const { paths, components } = parse(await readFile('openapi.yaml', 'utf8')) as Contract;
  const described = Object.values(paths)
    .flatMap((path) => Object.values(path))
    .flatMap(({ operationId, responses = {} }) => {
      const { $ref, description } = responses['500'] ?? {};
      const shared = $ref && components.responses[$ref.split('/').at(-1) as string];
      return operationId ? [`${operationId}: ${(shared || { description }).description}`] : [];
    });
  t.equal(described.length, 29);
  t.strictSame(
    described.filter((text) => /refund|charge|debit|pa(id|y)\b/i.test(text)),
    [],
  );
});
