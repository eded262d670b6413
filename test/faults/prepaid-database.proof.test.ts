import assert from 'node:assert/strict';
import { test } from 'tap';
import { moneyOf, TTS } from '../support/prepaid.ts';
import { FUNDS, startPrepaidOutage } from '../support/prepaid-outage.ts';
import { silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

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
