import { type Test, test } from 'tap';
import type { Config } from '../../src/config/config.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../../test/support/chain.ts';
import { type Call, type Gateway, type Reply, startGateway } from '../../test/support/gateway.ts';
import { fundedWallet, HELLO, startPrepaidGateway, TTS } from '../../test/support/prepaid.ts';
import {
  ControlledStream,
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

const FLOWS: Readonly<Record<string, (t: Test, adjust: (config: Config) => Config) => Promise<Scene>>> = {
  'card credits': async (t, adjust) => {
    const upstream = await testUpstream(t);
    const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, { adjust });
    const [one, two] = [await gateway.fund(500), await gateway.fund(500)];
    const pay = (account: string) => gateway.call('/tts', { ...HELLO, headers: { 'x-credit-account': account } });
    // The letters of an id have no case.
    let calls = 0;
    return { gateway, upstream, pay: () => pay(calls++ % 2 ? one.toUpperCase() : one), payAsAnother: () => pay(two) };
  },
  'prepaid x402': async (t, adjust) => {
    const gateway = await startPrepaidGateway(t, {}, { adjust });
    const [one, two] = [await fundedWallet(gateway, 1_000_000n), await fundedWallet(gateway, 1_000_000n)];
    const pay = async ({ sign }: typeof one) => gateway.call(TTS, await sign(TTS, HELLO));
    return { gateway, upstream: gateway.upstream, pay: () => pay(one), payAsAnother: () => pay(two) };
  },
  'direct x402': async (t, adjust) => {
    const gateway = await startX402Gateway(t, chain, { TRUST_PROXY: '127.0.0.1' }, { adjust });
    const [one, two] = [await wallet(chain.client, 1_000_000n), await wallet(chain.client, 1_000_000n)];
    const pay = async (payer: typeof one, address: string) => {
      const call: Call = { ...HELLO, headers: { 'x-forwarded-for': address } };
      return (await payFor(gateway, payer, call)).reply;
    };
    return {
      ...{ gateway, upstream: gateway.upstream },
      ...{ pay: () => pay(one, '192.0.2.1'), payAsAnother: () => pay(two, '192.0.2.2') },
    };
  },
};

/** Any work that is lost is much, and one paid synthesis makes it good. */
const ofLittle = (config: Config): Config => ({
  ...config,
  unpaidWork: { ...config.unpaidWork, maxUnpaidMs: 1, regainedMs: 3_600_000, maxUnsettledMs: 1 },
});

for (const [name, start] of Object.entries(FLOWS)) {
  test(`${name}: a payer with much unpaid work gets one synthesis at a time`, { skip }, async (t) => {
    const { gateway, upstream, pay, payAsAnother } = await start(t, ofLittle);
    /** Payments whose synthesis runs until it is let end. */
    const begin = async () => {
      const drip = new ControlledStream();
      upstream.mode = drip.mode;
      const reply = pay();
      await drip.opened;
      return async () => {
        await drip.write(silentMp3(500));
        drip.end();
        return (await reply).status;
      };
    };
    upstream.mode = openAiError(500);
    t.equal((await pay()).status, 502);
    t.equal((await pay()).status, 502, 'one at a time is never refused');

    const end = await begin();
    const before = upstream.requests.length;
    for (const reply of await Promise.all(Array.from({ length: 5 }, pay))) {
      const { code, details } = reply.json.error;
      t.strictSame(
        [reply.status, reply.headers.get('retry-after'), code, details.reason],
        [429, '5', 'RATE_LIMITED', 'one_at_a_time_while_unpaid'],
      );
    }
    t.equal(upstream.requests.length, before, 'nobody works for those');
    upstream.mode = mp3();
    t.equal((await payAsAnother()).status, 200);
    t.equal(await end(), 200);

    upstream.mode = mp3();
    // It counts as paid once the books have followed its answer.
    await until(async () => (await pay()).status === 200);
    const two = [await begin(), await begin()];
    t.strictSame(await Promise.all(two.map((end) => end())), [200, 200], 'two at once again');
    t.strictSame(await audit(gateway.db), []);
  });
}
