import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import fc from 'fast-check';
import type { LocalAccount } from 'viem';
import { wallet as fundedWallet, type TestChain } from '../../test/support/chain.ts';
import type { TestCheckout } from '../../test/support/checkout.ts';
import { DEPOSIT, DEPOSIT_PATH, depositOf } from '../../test/support/deposit.ts';
import { signedFeedback, submit } from '../../test/support/feedback.ts';
import type { Call, Gateway, Reply } from '../../test/support/gateway.ts';
import { later, untilJob } from '../../test/support/jobs.ts';
import { domainOf, TTS, withCredential } from '../../test/support/prepaid.ts';
import { viemWallet } from '../../test/support/wallet.ts';
import { challengeOf, payFor, sign, withPayment } from '../../test/support/x402.ts';

export interface Party {
  readonly call: Gateway['call'];
  readonly chain: TestChain;
  readonly checkout: TestCheckout;
  readonly payTo: `0x${string}`;
  readonly payer: LocalAccount;
  readonly account: string;
}

/** Dependent requests and their expected responses. A failure prints `toString()`. */
export interface Sequence {
  readonly name: string;
  run(party: Party): Promise<void>;
  toString(): string;
}

const post = (json: unknown): Call => ({ method: 'POST', json });
const statusOf = (reply: Reply) => `${reply.status}: ${reply.status === 200 ? '' : reply.text}`;
const is = (reply: Reply, ...statuses: number[]) =>
  assert.ok(statuses.includes(reply.status), `${statuses} expected, ${statusOf(reply)}`);

const text = fc.oneof(
  fc.constantFrom('Hello world', 'ä', '日本', '😀', 'a b\tc'),
  fc.string({ minLength: 1, maxLength: 30 }).map((made) => `a${made}`.trimEnd()),
);
const speed = fc.option(
  fc.integer({ min: 50, max: 200 }).map((value) => value / 100),
  { nil: undefined },
);
const copies = fc.integer({ min: 1, max: 3 });

const named = <T extends object>(
  name: string,
  drawn: fc.Arbitrary<T>,
  run: (party: Party, drawn: T) => Promise<void>,
): fc.Arbitrary<Sequence> =>
  drawn.map((values) => ({
    name,
    run: (party) => run(party, values),
    toString: () => `${name} ${JSON.stringify(values)}`,
  }));

const quoted = named(
  'quote, pay, replay',
  fc.record({
    text,
    speed,
    copies,
    tamper: fc.constantFrom('nothing', 'text', 'speed', 'path', 'identifier', 'signature', 'token'),
  }),
  async ({ call, payer }, { text, speed, copies, tamper }) => {
    const quote = await call(
      '/x402/tts/quote',
      post({
        textLength: text.length,
        textSha256: createHash('sha256').update(text).digest('hex'),
        ...(speed !== undefined && { speed }),
      }),
    );
    is(quote, 200);
    const { quoteToken } = quote.json;
    const payload = await sign(payer, await challengeOf({ call }, TTS, post({ quoteToken })));
    const paid = withPayment(post({ quoteToken, text }), payload);
    const first = await Promise.all(Array.from({ length: copies }, () => call(TTS, paid)));
    for (const reply of first) is(reply, 200, 409);
    assert.ok(
      first.some(({ status }) => status === 200),
      'one of them is served',
    );
    const again = await call(TTS, paid);
    is(again, 200);
    assert.equal(again.headers.get('x-idempotent-replay'), 'true');
    const tampered: Record<string, () => Promise<Reply>> = {
      text: () => call(TTS, withPayment(post({ quoteToken, text: `${text}!` }), payload)),
      speed: () => call(TTS, withPayment(post({ quoteToken, text, speed: 0.77 }), payload)),
      path: () => call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), payload)),
      identifier: async () =>
        call(TTS, withPayment(post({ quoteToken, text: `${text}` }), { ...payload, extensions: {} })),
      signature: () =>
        call(
          TTS,
          withPayment(post({ quoteToken, text }), {
            ...payload,
            payload: { ...payload.payload, signature: `0x${'11'.repeat(65)}` },
          }),
        ),
      token: () => call(TTS, withPayment(post({ quoteToken: `${quoteToken}x`, text }), payload)),
    };
    const refused = await tampered[tamper]?.();
    if (refused) assert.ok(refused.status >= 400, `${tamper} changed: ${statusOf(refused)}`);
  },
);

const job = named(
  'job, audio',
  fc.record({
    text,
    key: fc.boolean(),
    range: fc.option(
      fc.constantFrom('bytes=0-9', 'bytes=-5', 'bytes=99999999-', 'bytes=3-1', 'lines=1', 'bytes=0-1,3-4'),
    ),
    tamper: fc.constantFrom('nothing', 'sig', 'key', 'id'),
  }),
  async ({ call, account }, { text, key, range, tamper }) => {
    const options = { text, ...(key && { key: randomUUID() }) };
    const accepted = await later({ call }, account, options);
    is(accepted, 202);
    const { jobId } = accepted.json;
    if (key) assert.equal((await later({ call }, account, options)).json.jobId, jobId, 'the key names one job');
    if (key && tamper === 'key') is(await later({ call }, account, { ...options, text: `${text}!` }), 400);
    const early = await call(`/tts/jobs/${jobId}/audio`);
    is(early, 401, 409);
    const done = await untilJob({ call }, jobId, 'completed', 'failed');
    assert.equal(done.json.status, 'completed');
    const { pathname, search } = new URL(done.json.result.audioUrl);
    is(await call(pathname + search), 200);
    if (range) is(await call(pathname + search, { headers: { range } }), 200, 206, 416);
    if (tamper === 'sig') is(await call(`${pathname}${search.slice(0, -1)}`), 401);
    if (tamper === 'id') is(await call(`/tts/jobs/${randomUUID()}`), 404);
  },
);

/** Buys credit at the hosted checkout. @returns path of the page after payment */
async function checkOut(
  { call, checkout }: Pick<Party, 'call' | 'checkout'>,
  cents: number,
  before?: (location: string) => Promise<void>,
) {
  const opened = await call('/top-up', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: `amount=${cents}`,
  });
  is(opened, 303);
  const location = opened.headers.get('location') ?? '';
  await before?.(location);
  const { pathname, search } = new URL(await checkout.pay(location));
  return pathname + search;
}

const accountOn = (page: Reply | undefined): string =>
  /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/.exec(page?.text ?? '')?.[0] ?? '';

/** @returns the id of a new account with this credit */
export async function buyCredit(buyer: Pick<Party, 'call' | 'checkout'>, cents: number): Promise<string> {
  return accountOn(await buyer.call(await checkOut(buyer, cents)));
}

const topUp = named(
  'top-up, credit, speak',
  fc.record({ cents: fc.integer({ min: 50, max: 5000 }), early: fc.boolean(), copies, text }),
  async ({ call, checkout }, { cents, early, copies, text }) => {
    const back = await checkOut({ call, checkout }, cents, async (location) => {
      if (early) is(await call(`/top-up/complete?session_id=${location.split('/').at(-1)}`), 402, 502);
    });
    const pages = await Promise.all(Array.from({ length: copies }, () => call(back)));
    for (const page of pages) is(page, 200);
    const account = accountOn(pages[0]);
    const before = (await call(`/credits/${account}`)).json;
    const spoken = await call('/tts', { ...post({ text }), headers: { 'x-credit-account': account } });
    is(spoken, 200);
    const after = (await call(`/credits/${account}`)).json;
    assert.ok(
      after.balanceMicroUsd < before.balanceMicroUsd,
      `${JSON.stringify(before)} became ${JSON.stringify(after)}`,
    );
    is(await call(`/top-up/status?account=${account}`), 200);
  },
);

const deposited = named(
  'deposit, prepaid, replay',
  fc.record({ text, copies, tamper: fc.constantFrom('nothing', 'body', 'nonce', 'expired', 'max', 'account', 'path') }),
  async ({ call, chain, payTo }, { text, copies, tamper }) => {
    const payer = await fundedWallet(chain.client, BigInt(DEPOSIT));
    const domain = domainOf(payTo);
    const { reply, paid } = await payFor({ call }, payer, depositOf(DEPOSIT), DEPOSIT_PATH);
    is(reply, 200);
    is(await call(DEPOSIT_PATH, paid), 200);
    const request = await withCredential(payer, domain, TTS, post({ text }));
    const first = await Promise.all(Array.from({ length: copies }, () => call(TTS, request)));
    assert.equal(first.filter(({ status }) => status === 200).length, 1, `one is served: ${first.map(statusOf)}`);
    is(await call(TTS, request), 409);
    const tampered: Record<string, () => Promise<Reply>> = {
      body: () => call(TTS, { ...request, json: { text: `${text}!` } }),
      nonce: () => call(TTS, { ...request, headers: { ...request.headers, 'x-x402-nonce': 'another' } }),
      expired: async () => call(TTS, await withCredential(payer, domain, TTS, post({ text }), { expiry: 1n })),
      max: async () => call(TTS, await withCredential(payer, domain, TTS, post({ text }), { max: 0n })),
      account: () => call(TTS, { ...request, headers: { ...request.headers, 'x-x402-account': viemWallet().address } }),
      path: () => call(`/x402/accounts/${payer.address}`, { headers: request.headers ?? {} }),
    };
    const refused = await tampered[tamper]?.();
    if (refused) assert.ok(refused.status >= 400, `${tamper} changed: ${statusOf(refused)}`);
    const path = `/x402/accounts/${payer.address}`;
    const balance = await call(path, await withCredential(payer, domain, path, {}));
    const charged = Number(first.find(({ status }) => status === 200)?.headers.get('x-x402-charged'));
    assert.equal(balance.json.balanceMicroUsd, DEPOSIT - charged);
  },
);

const feedback = named(
  'feedback',
  fc.record({
    message: text,
    category: fc.constantFrom('bug', 'pricing', 'other'),
    tamper: fc.constantFrom('nothing', 'message', 'wallet', 'signature', 'challenge'),
  }),
  async ({ call }, { message, category, tamper }) => {
    const signed = await signedFeedback({ call }, viemWallet(), { message, category });
    const changed: Record<string, [object, number]> = {
      message: [{ message: `${message}!` }, 400],
      wallet: [{ wallet: viemWallet().address }, 400],
      signature: [{ signature: `0x${'22'.repeat(65)}` }, 401],
      challenge: [{ challenge: `${signed.challenge}x` }, 400],
    };
    const [change, status] = changed[tamper] ?? [{}, 201];
    is(await submit({ call }, { ...signed, ...change }), status);
    is(await submit({ call }, signed), tamper === 'nothing' ? 409 : 201);
  },
);

/** Complete flows, each with at most one change that must not be served. */
export const sequences: fc.Arbitrary<Sequence> = fc.oneof(quoted, job, topUp, deposited, feedback);
