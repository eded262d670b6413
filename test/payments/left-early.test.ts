import { request } from 'node:http';
import { mock } from 'node:test';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { SynthesisPermits } from '../../src/speech/synthesis-permits.ts';
import type { Call, Gateway } from '../support/gateway.ts';
import { PAYERS, PRICE } from '../support/payers.ts';
import { lockRows } from '../support/row-lock.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { ControlledStream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

/** Sends a request whose caller can disconnect. `leave` resolves when the gateway has seen it. */
function sendAndLeave({ url, app }: Gateway, path: string, { method, headers, json }: Call) {
  const closed = new Promise<void>((resolve) => {
    app.server.server.once('connection', (socket) => socket.once('close', () => resolve()));
  });
  const type = { 'content-type': 'application/json' };
  const sent = request(`${url}${path}`, { method, headers: { ...type, ...headers }, agent: false });
  sent.on('error', () => {});
  sent.end(JSON.stringify(json));
  return {
    leave: async () => {
      sent.destroy();
      await closed;
    },
  };
}

for (const flow of ['card', 'direct'] as const) {
  const { start, skip } = PAYERS[flow];
  test(`R55: ${flow}: who disconnects while waiting for a slot is not charged`, { skip }, async (t) => {
    const { gateway, upstream, path, pay, ask, paid } = await start(t, { SPEECH_CONCURRENCY: '1' });
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const first = ask(await pay());
    await drip.opened;
    const second = await pay();
    const permits = mock.method(SynthesisPermits.prototype, 'take');
    t.teardown(() => permits.mock.restore());
    const caller = sendAndLeave(gateway, path, second);
    await until(() => permits.mock.callCount() > 0);
    await caller.leave();
    await drip.write(silentMp3(1000));
    await drip.end();
    t.equal((await first).status, 200);
    // A stop waits for what runs.
    await gateway.app.close();
    t.equal(upstream.requests.length, 1, 'only the first is synthesized');
    t.equal(await paid(), PRICE);
    t.strictSame(await audit(gateway.db), []);
  });
}

for (const flow of ['card', 'prepaid'] as const) {
  test(`R55: ${flow}: who disconnects before the provider is called is not charged`, async (t) => {
    const { gateway, upstream, path, pay, paid } = await PAYERS[flow].start(t);
    const call = await pay();
    const account = sql`select from account where kind <> 'contra' for update`;
    const lock = await lockRows(t, gateway.databaseUrl, account);
    const caller = sendAndLeave(gateway, path, call);
    await lock.untilWaiting(1);
    await caller.leave();
    await lock.release();
    const hold = () => gateway.db.selectFrom('transfer').select('state').where('kind', 'in', ['charge', 'spend']);
    await until(async () => (await hold().executeTakeFirst())?.state === 'voided');
    t.equal(upstream.requests.length, 0);
    t.equal(await paid(), 0n);
    t.strictSame(await audit(gateway.db), []);
  });
}
