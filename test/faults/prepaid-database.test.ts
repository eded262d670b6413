import { sql } from 'kysely';
import { test } from 'tap';
import { booksClosed } from '../support/books.ts';
import { balanceHeaders, TTS } from '../support/prepaid.ts';
import { FUNDS, LEFT, startPrepaidOutage } from '../support/prepaid-outage.ts';
import { lockRows } from '../support/row-lock.ts';
import { silentMp3 } from '../support/stub-upstream.ts';

test('a database outage before the void charges nothing once the lease expires', async (t) => {
  const { gateway, proxy, drip, call, balance, leasePasses, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.cut();
  drip.reset();
  const reply = await answer;
  t.strictSame([reply.status, reply.json.error.code], [502, 'TTS_UPSTREAM_ERROR']);
  t.strictSame(balanceHeaders(reply), ['0', String(FUNDS)]);
  proxy.restore();
  t.equal(await balance(), LEFT, 'restored with the lease');
  await leasePasses();
  await assertEnd(FUNDS);
});

test('a database outage before the capture delays only the charge', async (t) => {
  const { db, gateway, proxy, drip, call, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.cut();
  await drip.write(silentMp3(500));
  drip.end();
  const reply = await answer;
  t.equal(reply.status, 200);
  t.strictSame(balanceHeaders(reply), ['198', String(LEFT)]);
  t.strictSame(reply.bytes, silentMp3(500));
  proxy.restore();
  await booksClosed(db);
  await assertEnd(LEFT);
});

test('a capture whose response is lost is retried and charges once', async (t) => {
  const { gateway, proxy, drip, call, untilHold, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.mute();
  await drip.write(silentMp3(500));
  drip.end();
  t.equal((await answer).status, 200);
  await untilHold('posted');
  proxy.restore();
  await assertEnd(LEFT);
});

test('a capture that outlives its connection charges once when retried', async (t) => {
  const { url, db, gateway, proxy, drip, call, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  const lock = await lockRows(t, url, sql`select from transfer where kind = 'spend' for update`);
  await drip.write(silentMp3(500));
  drip.end();
  t.equal((await answer).status, 200);
  await lock.untilWaiting(1);
  proxy.cut();
  proxy.restore();
  await lock.untilWaiting(2);
  await lock.release();
  await booksClosed(db);
  await assertEnd(LEFT);
});

test('a debit whose response is lost is 503, and its lease restores the balance', async (t) => {
  const { url, gateway, proxy, call, balance, untilHold, leasePasses, assertEnd } = await startPrepaidOutage(t);
  const lock = await lockRows(t, url, sql`select from account where address is not null for update`);
  const answer = gateway.call(TTS, call);
  await lock.untilWaiting(1);
  proxy.mute();
  await lock.release();
  await untilHold('pending');
  proxy.restore();
  const reply = await answer;
  t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  t.strictSame(balanceHeaders(reply), [null, null]);
  t.equal(await balance(), LEFT);
  await leasePasses();
  await assertEnd(FUNDS);
  t.equal(gateway.upstream.requests.length, 0);
});
