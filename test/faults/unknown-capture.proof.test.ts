import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import type { Config } from '../../src/settings/config.ts';
import { testDatabase } from '../support/database.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { type GatewayOptions, startGateway } from '../support/gateway.ts';
import { moneyOf, TTS } from '../support/prepaid.ts';
import { FUNDS, LEFT, startPrepaidOutage } from '../support/prepaid-outage.ts';
import { reversalsIn } from '../support/reversals.ts';
import { Drip, silentMp3, startStubUpstream } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';

/** A capture is given up at once, so that no test waits for its 15 seconds. */
const IMPATIENT: GatewayOptions = { adjust: (config: Config) => ({ ...config, capturePatienceMs: 0 }) };
const SPENT = { kind: 'spend', amount: 198n, reason: 'not_delivered' };

/** A card request to a gateway whose database can be taken away; everything else reaches the database directly. */
async function startCardOutage(t: Test) {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const drip = new Drip();
  const upstream = await startStubUpstream({ mode: drip.mode });
  t.teardown(() => upstream.close());
  const direct = await startGateway(t, {}, { databaseUrl: url });
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, { ...IMPATIENT, databaseUrl: proxy.url });
  const account = await direct.fund(500);
  const state = async () =>
    (await direct.db.selectFrom('transfer').select('state').where('kind', '=', 'charge').execute())[0]?.state;
  return {
    ...{ gateway, proxy, drip, account, db: direct.db },
    balance: () => direct.balance(account),
    untilHold: (wanted: string) => until(async () => (await state()) === wanted),
  };
}

type CardOutage = Awaited<ReturnType<typeof startCardOutage>>;

/** How the audio comes; each begins a request, and tells what waits for its end. */
const DELIVERIES = [
  {
    name: 'audio that is whole at once is answered with 503',
    async begin({ gateway, drip, account }: CardOutage) {
      const answer = gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
      await drip.opened;
      return async () => {
        const reply = await answer;
        assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
        assert.doesNotMatch(reply.text, /nothing was charged/i);
      };
    },
  },
  {
    name: 'audio that flows breaks off',
    async begin({ gateway, drip, account }: CardOutage) {
      const incoming = await askForFlowingAudio(gateway.url, account, drip);
      const brokenOff = assert.rejects(buffer(incoming), /aborted|ECONNRESET/);
      return () => brokenOff;
    },
  },
];

for (const { name, begin } of DELIVERIES) {
  test(`card: the answer to a capture is lost and the database stays away: ${name}, and nothing is charged`, async (t) => {
    const outage = await startCardOutage(t);
    const { proxy, drip, db, balance, untilHold } = outage;
    const ended = await begin(outage);
    proxy.mute();
    await drip.write(silentMp3(500));
    drip.end();
    await untilHold('posted');
    proxy.cut();
    await ended();
    assert.equal(await balance(), 4_999_802n, 'charged while nobody knows');
    proxy.restore();
    await until(async () => (await balance()) === 5_000_000n);
    await untilHold('posted');
    assert.deepEqual(await reversalsIn(db), [{ ...SPENT, kind: 'charge' }]);
    assert.deepEqual(await audit(db), []);
  });

  test(`card: a capture that was never made is void before its lease has passed: ${name}`, async (t) => {
    const outage = await startCardOutage(t);
    const { proxy, drip, db, balance, untilHold } = outage;
    const ended = await begin(outage);
    proxy.cut();
    await drip.write(silentMp3(500));
    drip.end();
    await ended();
    proxy.restore();
    await untilHold('voided');
    assert.equal(await balance(), 5_000_000n);
    assert.deepEqual(await reversalsIn(db), []);
    assert.deepEqual(await audit(db), []);
  });
}

test('prepaid: the answer to a capture is lost and the database stays away: 503, and the price is given back', async (t) => {
  const { db, gateway, proxy, drip, call, balance, untilHold, assertEnd } = await startPrepaidOutage(t, IMPATIENT);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.mute();
  await drip.write(silentMp3(500));
  drip.end();
  await untilHold('posted');
  proxy.cut();
  const reply = await answer;
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  assert.deepEqual(moneyOf(reply), [null, null]);
  assert.doesNotMatch(reply.text, /nothing was charged/i);
  assert.equal(await balance(), LEFT, 'charged while nobody knows');
  const metrics = async () => (await gateway.app.admin.inject('/metrics')).body;
  assert.match(await metrics(), /^speechgate_doubtful_captures 1$/m);
  proxy.restore();
  await until(async () => (await balance()) === FUNDS);
  await until(async () => /^speechgate_doubtful_captures 0$/m.test(await metrics()));
  assert.match(await metrics(), /^speechgate_holds_total\{flow="prepaid",event="reversed"\} 1$/m);
  assert.deepEqual(await reversalsIn(db), [SPENT]);
  await assertEnd(FUNDS);
});

test('prepaid: a capture that was never made is void as soon as the database is back, before its lease has passed', async (t) => {
  const { db, gateway, proxy, drip, call, balance, assertEnd } = await startPrepaidOutage(t, IMPATIENT);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.cut();
  await drip.write(silentMp3(500));
  drip.end();
  assert.equal((await answer).status, 503);
  proxy.restore();
  await until(async () => (await balance()) === FUNDS);
  assert.deepEqual(await reversalsIn(db), []);
  await assertEnd(FUNDS);
});

test('a stop does not wait for a database that stays away, and leaves what is unknown to the others', async (t) => {
  const { db, gateway, proxy, drip, call, balance, untilHold } = await startPrepaidOutage(t, IMPATIENT);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.mute();
  await drip.write(silentMp3(500));
  drip.end();
  await untilHold('posted');
  proxy.cut();
  assert.equal((await answer).status, 503);
  await gateway.app.close();
  assert.equal(await balance(), LEFT);
  assert.deepEqual(await reversalsIn(db), []);
});
