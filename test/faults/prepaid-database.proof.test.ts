import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { depositor, HELLO, moneyOf, TTS } from '../support/prepaid.ts';
import { FUNDS, LEFT, startPrepaidOutage } from '../support/prepaid-outage.ts';
import { lockRows } from '../support/row-lock.ts';
import { silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

test('database lost between debit and restore: nothing is charged once the lease has passed', async (t) => {
  const { gateway, proxy, drip, call, balance, leasePasses, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.cut();
  drip.reset();
  const reply = await answer;
  assert.deepEqual([reply.status, reply.json.error.code], [502, 'TTS_UPSTREAM_ERROR']);
  assert.deepEqual(moneyOf(reply), ['0', String(FUNDS)]);
  proxy.restore();
  assert.equal(await balance(), LEFT, 'restored with the lease');
  await leasePasses();
  await assertEnd(FUNDS);
});

test('database lost between debit and capture: delivered once it is back, charged once', async (t) => {
  const { gateway, proxy, drip, call, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.cut();
  await drip.write(silentMp3(500));
  drip.end();
  assert.equal(await gateway.upstream.requests[0]?.closed, 'complete');
  proxy.restore();
  const reply = await answer;
  assert.equal(reply.status, 200);
  assert.deepEqual(moneyOf(reply), ['198', String(LEFT)]);
  assert.deepEqual(reply.bytes, silentMp3(500));
  await assertEnd(LEFT);
});

test('the answer to the capture is lost: it is repeated, and charges once', async (t) => {
  const { gateway, proxy, drip, call, untilHold, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.mute();
  await drip.write(silentMp3(500));
  drip.end();
  await untilHold('posted');
  proxy.restore();
  const reply = await answer;
  assert.equal(reply.status, 200);
  assert.deepEqual(moneyOf(reply), ['198', String(LEFT)]);
  await assertEnd(LEFT);
});

test('the connection breaks while the capture still runs: its repetition finds it made, and charges once', async (t) => {
  const { url, gateway, proxy, drip, call, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  const lock = await lockRows(t, url, sql`select from transfer where kind = 'spend' for update`);
  await drip.write(silentMp3(500));
  drip.end();
  await lock.untilWaiting(1);
  proxy.cut();
  proxy.restore();
  await lock.untilWaiting(2);
  await lock.release();
  const reply = await answer;
  assert.deepEqual(moneyOf(reply), ['198', String(LEFT)]);
  assert.equal(reply.status, 200);
  await assertEnd(LEFT);
});

test('the answer to the debit is lost: no claim about money, no synthesis, and the lease gives it back', async (t) => {
  const { gateway, proxy, call, balance, untilHold, leasePasses, assertEnd } = await startPrepaidOutage(t);
  const stranger = await depositor(gateway, 0n);
  const refused = await gateway.call(TTS, await stranger.sign(TTS, HELLO));
  assert.equal(refused.status, 402, 'the gateway is connected, and known to the database as a process');
  proxy.mute();
  const answer = gateway.call(TTS, call);
  await untilHold('pending');
  proxy.restore();
  const reply = await answer;
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  assert.deepEqual(moneyOf(reply), [null, null]);
  assert.equal(await balance(), LEFT);
  await leasePasses();
  await assertEnd(FUNDS);
  assert.equal(gateway.upstream.requests.length, 0);
});

/** The capture is given up after 15 s, and whether it was made is not known then. */
test('database lost for longer than a capture is tried: the answer claims nothing that is not so', {
  jobs: 2,
}, async (t) => {
  await Promise.all([
    t.test('no capture was made: nothing is retained once the lease has passed', async (t) => {
      const { gateway, proxy, drip, call, leasePasses, assertEnd } = await startPrepaidOutage(t);
      const answer = gateway.call(TTS, call);
      await drip.opened;
      proxy.cut();
      await drip.write(silentMp3(500));
      drip.end();
      const reply = await answer;
      assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
      assert.deepEqual(moneyOf(reply), [null, null]);
      proxy.restore();
      await leasePasses();
      await assertEnd(FUNDS);
    }),
    t.test(
      'a capture was made and its answer lost: the price is given back, and no 0 was claimed before',
      async (t) => {
        const { gateway, proxy, drip, call, balance, untilHold, assertEnd } = await startPrepaidOutage(t);
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
        proxy.restore();
        await until(async () => (await balance()) === FUNDS);
        await assertEnd(FUNDS);
      },
    ),
  ]);
});
