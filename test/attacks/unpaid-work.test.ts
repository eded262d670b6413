import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import type { Config } from '../../src/config.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { type Call, type Gateway, type Reply, startGateway } from '../support/gateway.ts';
import { depositor, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import {
  Drip,
  hangBeforeHeaders,
  mp3,
  type StubUpstream,
  silentMp3,
  startStubUpstream,
} from '../support/stub-upstream.ts';
import { payFor, startX402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();
const TIMEOUT_MS = 2_000;

/** A payer of one flow beside another one. */
interface Scene {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
  pay(): Promise<Reply>;
  payAsAnother(): Promise<Reply>;
}

type Start = (t: TestContext, env: Record<string, string>) => Promise<Scene>;

const card: Start = async (t, env) => {
  const upstream = await startStubUpstream();
  t.after(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env });
  const accounts = [await gateway.fund(500), await gateway.fund(500)] as const;
  const pay = (account: string) => gateway.call('/tts', { ...HELLO, headers: { 'x-credit-account': account } });
  // The letters of an id have no case.
  let calls = 0;
  const own = () => (calls++ % 2 ? accounts[0].toUpperCase() : accounts[0]);
  return { gateway, upstream, pay: () => pay(own()), payAsAnother: () => pay(accounts[1]) };
};

const prepaid: Start = async (t, env) => {
  const gateway = await startPrepaidGateway(t, env);
  const [one, two] = [await depositor(gateway, 1_000_000n), await depositor(gateway, 1_000_000n)];
  const pay = async (sign: (path: string, call: Call) => Promise<Call>) => gateway.call(TTS, await sign(TTS, HELLO));
  return { gateway, upstream: gateway.upstream, pay: () => pay(one.sign), payAsAnother: () => pay(two.sign) };
};

const direct = async (t: TestContext, env: Record<string, string>, adjust?: (config: Config) => Config) => {
  const options = adjust && { adjust };
  const gateway = await startX402Gateway(t, chain, { TRUST_PROXY: '127.0.0.1', ...env }, options);
  const payers = [await wallet(chain.client, 1_000_000n), await wallet(chain.client, 1_000_000n)] as const;
  const from = (address: string): Call => ({ ...HELLO, headers: { 'x-forwarded-for': address } });
  return {
    ...{ gateway, upstream: gateway.upstream },
    pay: async () => (await payFor(gateway, payers[0], from('192.0.2.1'))).reply,
    payAsAnother: async () => (await payFor(gateway, payers[1], from('192.0.2.2'))).reply,
  };
};

const statusesOf = (replies: Reply[]) => replies.map(({ status }) => status).sort();

for (const [name, start, reason] of [
  ['card credits', card, false],
  ['prepaid x402', prepaid, false],
  ['direct x402', direct, skip],
] as const) {
  test(`${name}: who has lost much unpaid work has one synthesis at a time until some are paid, others are served`, {
    skip: reason,
  }, async (t) => {
    const scene = await start(t, { SPEECH_TIMEOUT_MS: String(TIMEOUT_MS) });
    const { upstream, pay, payAsAnother } = scene;
    upstream.mode = hangBeforeHeaders();
    const lost = await Promise.all(Array.from({ length: 10 }, pay));
    assert.deepEqual(statusesOf(lost), Array(10).fill(503));
    const before = upstream.requests.length;
    assert.equal(before, 10);

    const drip = new Drip();
    upstream.mode = drip.mode;
    const held = pay();
    await drip.opened;
    const refused = await Promise.all(Array.from({ length: 5 }, pay));
    for (const reply of refused) {
      assert.equal(reply.status, 429);
      assert.equal(reply.headers.get('retry-after'), '5');
      assert.deepEqual(
        [reply.json.error.code, reply.json.error.details.reason],
        ['RATE_LIMITED', 'one_at_a_time_while_unpaid'],
      );
    }
    upstream.mode = mp3();
    assert.equal((await payAsAnother()).status, 200);
    assert.equal(upstream.requests.length - before, 2, 'the one that is served, and the other payer');

    await drip.write(silentMp3(500));
    drip.end();
    assert.equal((await held).status, 200);
    for (let count = 0; count < 10; count += 1) assert.equal((await pay()).status, 200);
    assert.deepEqual(statusesOf(await Promise.all(Array.from({ length: 5 }, pay))), Array(5).fill(200));
    assert.deepEqual(await audit(scene.gateway.db), []);
  });
}

test('R21b: 130 timed-out syntheses of one payer give their seconds back, and another payer is served', {
  skip,
}, async (t) => {
  const timeoutMs = 1_000;
  // Of all payers together, a single timed-out synthesis would be too much.
  const { gateway, upstream, pay, payAsAnother } = await direct(
    t,
    { SPEECH_TIMEOUT_MS: String(timeoutMs) },
    (config) => ({
      ...config,
      unpaidWork: { ...config.unpaidWork, maxUnsettledMs: timeoutMs / 2 },
    }),
  );
  upstream.mode = hangBeforeHeaders();
  for (let batch = 0; batch < 5; batch += 1) {
    const replies = await Promise.all(Array.from({ length: 26 }, pay));
    assert.ok(replies.every(({ status }) => status === 503 || status === 429));
  }
  upstream.mode = mp3();
  assert.equal((await payAsAnother()).status, 200);
  const { payload } = await gateway.app.admin.inject('/metrics');
  assert.match(payload, /^speechgate_unsettled_work_seconds 0$/m);
});
