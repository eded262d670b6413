import assert from 'node:assert/strict';
import { request } from 'node:http';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { PAYERS, PRICE } from '../support/payers.ts';
import {
  Drip,
  garbage,
  hangBeforeHeaders,
  type Mode,
  openAiError,
  resetInBody,
  silentMp3,
} from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

/** Those that may pass by themselves are tried again by a job (test/jobs/attempts.test.ts). */
const FAULTS: { name: string; mode: Mode; mayPass: boolean }[] = [
  { name: 'an error', mode: openAiError(500), mayPass: true },
  { name: 'a refusal', mode: openAiError(403), mayPass: false },
  { name: 'garbage', mode: garbage(), mayPass: false },
  { name: 'a reset within the audio', mode: resetInBody(), mayPass: true },
  { name: 'silence', mode: hangBeforeHeaders(), mayPass: true },
];

for (const [name, { start, skip }] of Object.entries(PAYERS)) {
  const isJob = name === 'job';

  test(`${name}: what every payment strategy keeps`, { skip }, async (t) => {
    await t.test('speech is paid once, at its exact price', async (t) => {
      const { gateway, ask, pay, paid } = await start(t, {});
      assert.deepEqual(await ask(await pay()), { status: 200, mimeType: 'audio/mpeg' });
      assert.equal(await paid(), PRICE);
      assert.deepEqual(await audit(gateway.db), []);
    });

    await t.test('nothing is paid for what the provider failed to speak, and the payer can pay again', async (t) => {
      const { gateway, upstream, ask, pay, paid } = await start(t, { SPEECH_TIMEOUT_MS: '500' });
      for (const fault of FAULTS.filter(({ mayPass }) => !(isJob && mayPass))) {
        const working = upstream.mode;
        upstream.mode = fault.mode;
        const status = await ask(await pay()).then(
          (reply) => reply.status,
          () => 'reset',
        );
        assert.ok([502, 503, 'reset'].includes(status), `${fault.name}: ${status}`);
        await until(async () => (await paid()) === 0n);
        upstream.mode = working;
      }
      assert.equal((await ask(await pay())).status, 200);
      assert.equal(await paid(), PRICE);
      assert.deepEqual(await audit(gateway.db), []);
    });

    await t.test('of 12 requests at once on a budget for 5, 5 are served and paid', async (t) => {
      const { gateway, ask, pay, paid } = await start(t, {});
      const calls = await Promise.all(Array.from({ length: 12 }, pay));
      const replies = await Promise.all(calls.map(ask));
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

    // The caller of a job is answered before.
    if (isJob) return;

    await t.test(
      'R9: an overloaded provider is 503 with its Retry-After, any other error answer of it 502',
      async (t) => {
        const { gateway, upstream, path, pay, paid } = await start(t, {});
        for (const status of [400, 401, 402, 403, 404, 408, 429, 500, 501, 502, 503, 504, 529]) {
          upstream.mode = openAiError(status, 'canary', { 'retry-after': '7' });
          const { json, headers, ...reply } = await gateway.call(path, await pay());
          const isOverloaded = status === 429 || status === 503;
          assert.equal(reply.status, isOverloaded ? 503 : 502, String(status));
          assert.equal(json.error.code, isOverloaded ? 'TTS_UNAVAILABLE' : 'TTS_UPSTREAM_ERROR');
          assert.equal(headers.get('retry-after'), isOverloaded ? '7' : null);
          assert.doesNotMatch(reply.text, /canary/);
        }
        assert.equal(await paid(), 0n);
        assert.deepEqual(await audit(gateway.db), []);
      },
    );
  });
}
