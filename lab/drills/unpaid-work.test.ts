import { type Test, test } from 'tap';
import type { Config } from '../../src/config/config.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../../test/support/chain.ts';
import { type Call, type Gateway, type Reply, startGateway } from '../../test/support/gateway.ts';
import { fundedWallet, HELLO, startPrepaidGateway, TTS } from '../../test/support/prepaid.ts';
import {
  ControlledStream,
  hangBeforeHeaders,
  mp3,
  openAiError,
  type StubUpstream,
  silentMp3,
  testUpstream,
} from '../../test/support/stub-upstream.ts';
import { until } from '../../test/support/until.ts';
import { payFor, startX402Gateway } from '../../test/support/x402.ts';

const { chain, skip } = await testChain();

/** A payer of one flow beside another one. */
interface Scene {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
  pay(): Promise<Reply>;
  payAsAnother(): Promise<Reply>;
}

type Start = (t: Test, adjust: (config: Config) => Config, env?: Record<string, string>) => Promise<Scene>;

const card: Start = async (t, adjust, env = {}) => {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }, { adjust });
  const accounts = [await gateway.fund(500), await gateway.fund(500)] as const;
  const pay = (account: string) => gateway.call('/tts', { ...HELLO, headers: { 'x-credit-account': account } });
  // The letters of an id have no case.
  let calls = 0;
  const own = () => (calls++ % 2 ? accounts[0].toUpperCase() : accounts[0]);
  return { gateway, upstream, pay: () => pay(own()), payAsAnother: () => pay(accounts[1]) };
};

const prepaid: Start = async (t, adjust) => {
  const gateway = await startPrepaidGateway(t, {}, { adjust });
  const [one, two] = [await fundedWallet(gateway, 1_000_000n), await fundedWallet(gateway, 1_000_000n)];
  const pay = async (sign: (path: string, call: Call) => Promise<Call>) => gateway.call(TTS, await sign(TTS, HELLO));
  return { gateway, upstream: gateway.upstream, pay: () => pay(one.sign), payAsAnother: () => pay(two.sign) };
};

const direct: Start = async (t, adjust) => {
  const gateway = await startX402Gateway(t, chain, { TRUST_PROXY: '127.0.0.1' }, { adjust });
  const payers = [await wallet(chain.client, 1_000_000n), await wallet(chain.client, 1_000_000n)] as const;
  const from = (address: string): Call => ({ ...HELLO, headers: { 'x-forwarded-for': address } });
  return {
    ...{ gateway, upstream: gateway.upstream },
    pay: async () => (await payFor(gateway, payers[0], from('192.0.2.1'))).reply,
    payAsAnother: async () => (await payFor(gateway, payers[1], from('192.0.2.2'))).reply,
  };
};

/** Any work that is lost is much, and one paid synthesis makes it good. */
const ofLittle = (config: Config): Config => ({
  ...config,
  unpaidWork: { ...config.unpaidWork, maxUnpaidMs: 1, regainedMs: 3_600_000, maxUnsettledMs: 1 },
});

for (const [name, start, reason] of [
  ['card credits', card, false],
  ['prepaid x402', prepaid, false],
  ['direct x402', direct, skip],
] as const) {
  test(`${name}: a payer with much unpaid work gets one synthesis at a time`, {
    skip: reason,
  }, async (t) => {
    const { gateway, upstream, pay, payAsAnother } = await start(t, ofLittle);
    upstream.mode = openAiError(500);
    t.equal((await pay()).status, 502);
    t.equal((await pay()).status, 502, 'one at a time is never refused');

    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const held = pay();
    await drip.opened;
    const before = upstream.requests.length;
    for (const reply of await Promise.all(Array.from({ length: 5 }, pay))) {
      t.equal(reply.status, 429, reply.text);
      t.equal(reply.headers.get('retry-after'), '5');
      t.equal(reply.json.error.code, 'RATE_LIMITED');
      t.equal(reply.json.error.details.reason, 'one_at_a_time_while_unpaid');
    }
    t.equal(upstream.requests.length, before, 'nobody works for those');
    upstream.mode = mp3();
    t.equal((await payAsAnother()).status, 200);

    await drip.write(silentMp3(500));
    drip.end();
    t.equal((await held).status, 200);
    upstream.mode = mp3();
    // It counts as paid once the books have followed its answer.
    await until(async () => (await pay()).status === 200);
    const drips = [new ControlledStream(), new ControlledStream()] as const;
    const free = [];
    for (const each of drips) {
      upstream.mode = each.mode;
      free.push(pay());
      await each.opened;
    }
    for (const each of drips) {
      await each.write(silentMp3(500));
      each.end();
    }
    t.strictSame(
      (await Promise.all(free)).map(({ status }) => status),
      [200, 200],
      'two at once again',
    );
    t.strictSame(await audit(gateway.db), []);
  });
}

test('card credits: a synthesis that times out is unpaid work too', async (t) => {
  const { gateway, upstream, pay } = await card(t, ofLittle, { SPEECH_TIMEOUT_MS: '3000' });
  upstream.mode = hangBeforeHeaders();
  t.equal((await pay()).status, 503);
  const second = pay();
  await upstream.waitForRequests(2);
  t.equal((await pay()).status, 429);
  t.equal((await second).status, 503);
  t.strictSame(await audit(gateway.db), []);
});
