import assert from 'node:assert/strict';
import { request } from 'node:http';
import test, { type TestContext } from 'node:test';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { type Call, type Gateway, startGateway } from '../support/gateway.ts';
import { depositor, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import {
  Drip,
  garbage,
  hangBeforeHeaders,
  type Mode,
  openAiError,
  resetInBody,
  type StubUpstream,
  silentMp3,
  startStubUpstream,
} from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { challengeOf, sign, startX402Gateway, withPayment } from '../support/x402.ts';

const SPEECH: Call = { method: 'POST', json: { text: 'a'.repeat(111) } };
const PRICE = 1998n;
/** Micro-USD: a cent, which pays for 5. */
const BUDGET = 10_000n;
const { chain, skip } = await testChain();

interface Payer {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
  readonly path: string;
  /** The request with a payment of its own. */
  pay(): Promise<Call>;
  /** What this payer has paid by now, in micro-USD; it has a cent. */
  paid(): Promise<bigint>;
}

type Start = (t: TestContext, env: Record<string, string>) => Promise<Payer>;

const card: Start = async (t, env) => {
  const upstream = await startStubUpstream();
  t.after(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env });
  const account = await gateway.fund(Number(BUDGET / 10_000n));
  return {
    ...{ gateway, upstream, path: '/tts' },
    pay: async () => ({ ...SPEECH, headers: { 'x-credit-account': account } }),
    paid: async () => BUDGET - (await gateway.balance(account)),
  };
};

const prepaid: Start = async (t, env) => {
  const gateway = await startPrepaidGateway(t, env);
  const { sign, balance } = await depositor(gateway, BUDGET);
  return {
    ...{ gateway, upstream: gateway.upstream, path: TTS },
    pay: () => sign(TTS, SPEECH),
    paid: async () => BUDGET - (await balance()),
  };
};

const direct: Start = async (t, env) => {
  const gateway = await startX402Gateway(t, chain, env);
  const payer = await wallet(chain.client, BUDGET);
  return {
    ...{ gateway, upstream: gateway.upstream, path: TTS },
    pay: async () => withPayment(SPEECH, await sign(payer, await challengeOf(gateway, TTS, SPEECH))),
    paid: () => gateway.revenue(),
  };
};

const FAULTS: [string, Mode][] = [
  ['an error', openAiError(500)],
  ['garbage', garbage()],
  ['a reset within the audio', resetInBody()],
  ['silence', hangBeforeHeaders()],
];

for (const [name, start, reason] of [
  ['card credits', card, false],
  ['prepaid x402', prepaid, false],
  ['direct x402', direct, skip],
] as const) {
  test(`${name}: what every payment strategy keeps`, { skip: reason }, async (t) => {
    await t.test('speech is paid once, at its exact price', async (t) => {
      const { gateway, path, pay, paid } = await start(t, {});
      const reply = await gateway.call(path, await pay());
      assert.deepEqual([reply.status, reply.headers.get('content-type')], [200, 'audio/mpeg']);
      assert.equal(await paid(), PRICE);
      assert.deepEqual(await audit(gateway.db), []);
    });

    await t.test('nothing is paid for what the provider failed to speak, and the payer can pay again', async (t) => {
      const { gateway, upstream, path, pay, paid } = await start(t, { SPEECH_TIMEOUT_MS: '500' });
      for (const [fault, mode] of FAULTS) {
        const working = upstream.mode;
        upstream.mode = mode;
        const status = await gateway.call(path, await pay()).then(
          (reply) => reply.status,
          () => 'reset',
        );
        assert.ok([502, 503, 'reset'].includes(status), `${fault}: ${status}`);
        await until(async () => (await paid()) === 0n);
        upstream.mode = working;
      }
      assert.equal((await gateway.call(path, await pay())).status, 200);
      assert.equal(await paid(), PRICE);
      assert.deepEqual(await audit(gateway.db), []);
    });

    await t.test('of 12 requests at once on a budget for 5, 5 are served and paid', async (t) => {
      const { gateway, path, pay, paid } = await start(t, {});
      const calls = await Promise.all(Array.from({ length: 12 }, pay));
      const replies = await Promise.all(calls.map((call) => gateway.call(path, call)));
      const served = replies.filter(({ status }) => status === 200).length;
      assert.equal(served, 5, replies.map(({ status }) => status).join());
      assert.ok(replies.every(({ status }) => status === 200 || status === 402));
      assert.equal(await paid(), 5n * PRICE);
      assert.deepEqual(await audit(gateway.db), []);
    });

    await t.test('R55: a caller who hangs up while the provider speaks has paid', async (t) => {
      const { gateway, upstream, path, pay, paid } = await start(t, {});
      const drip = new Drip();
      upstream.mode = drip.mode;
      const { headers, json } = await pay();
      const options = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' } };
      const outgoing = request(`${gateway.url}${path}`, options).on('error', () => {});
      outgoing.end(JSON.stringify(json));
      await drip.opened;
      outgoing.destroy();
      drip.write(silentMp3(500));
      drip.end();
      await until(async () => (await paid()) === PRICE);
      await gateway.app.server.close();
      assert.deepEqual(await audit(gateway.db), []);
    });
  });
}
