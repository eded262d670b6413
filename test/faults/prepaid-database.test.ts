import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../support/books.ts';
import { testDatabase } from '../support/database.ts';
import type { GatewayOptions } from '../support/gateway.ts';
import { detailsOf, PENDING } from '../support/lost-answer.ts';
import { balanceHeaders, fundedWallet, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { runTurn } from '../support/reconcile.ts';
import { lockRows } from '../support/row-lock.ts';
import { ControlledStream, silentMp3 } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';

const FUNDS = 100_000n;
/** After the price of HELLO. */
const LEFT = FUNDS - 198n;

/**
 * A prepaid request to a gateway whose database can be taken away, with an upstream that answers as the test says.
 * Everything but the gateway reaches the database directly.
 */
async function startPrepaidOutage(t: Test, options: GatewayOptions = {}) {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const db = openDatabase(url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  const gateway = await startPrepaidGateway(t, {}, { ...options, databaseUrl: proxy.url });
  const drip = new ControlledStream();
  gateway.upstream.mode = drip.mode;
  const { sign, balance } = await fundedWallet({ ...gateway, db }, FUNDS);
  const call = await sign(TTS, HELLO);
  const holds = async () => await db.selectFrom('transfer').select('state').where('kind', '=', 'spend').execute();
  return {
    ...{ url, db, gateway, proxy, drip, call, balance },
    /** Waits until the ledger has the one debit of this request in this state. */
    untilHold: (state: 'pending' | 'posted') => until(async () => (await holds())[0]?.state === state),
    /** The lease of the hold passes, and the reconcilers have their turn. */
    leasePasses: async () => {
      await sql`update transfer set lease_until = now() where state = 'pending'`.execute(db);
      await until(async () => (await runTurn(gateway, 'expired_holds')).outcome === 'done');
    },
    /** With the database back: this is left, the nonce is spent, and the audit finds nothing. */
    assertEnd: async (left: bigint) => {
      assert.equal(await balance(), left);
      const repeated = await gateway.call(TTS, call);
      assert.deepEqual([repeated.status, repeated.json.error.code], [409, 'PREPAID_NONCE_REPLAYED']);
      assert.deepEqual(balanceHeaders(repeated), [String(FUNDS - left), String(left)]);
      assert.deepEqual(await audit(db), []);
    },
  };
}

test('a database outage before the void charges nothing once the lease expires', async (t) => {
  const { gateway, proxy, drip, call, balance, leasePasses, assertEnd } = await startPrepaidOutage(t);
  const answer = gateway.call(TTS, call);
  await drip.opened;
  proxy.cut();
  drip.reset();
  const reply = await answer;
  t.equal(reply.status, 409);
  t.strictSame(detailsOf(reply), PENDING, 'after a failover, a repetition might be charged');
  proxy.restore();
  t.equal(await balance(), LEFT, 'restored with the lease');
  await leasePasses();
  await assertEnd(FUNDS);
});

test('R64: a failed request whose hold a failover lost is pending while repeated', async (t) => {
  const { db, gateway, drip, call, balance, assertEnd } = await startPrepaidOutage(t);
  const first = gateway.call(TTS, call);
  await drip.opened;
  await unguarded(db, async (trx) => {
    await sql`delete from prepaid_nonce`.execute(trx);
    await sql`delete from transfer where kind = 'spend'`.execute(trx);
    await sql`update account set balance_micro_usd = ${FUNDS} where address is not null`.execute(trx);
  });
  const repetition = new ControlledStream();
  gateway.upstream.mode = repetition.mode;
  const second = gateway.call(TTS, call);
  await repetition.opened;
  drip.reset();
  const failed = await first;
  t.equal(failed.status, 409);
  t.strictSame(detailsOf(failed), PENDING);
  await repetition.write(silentMp3(500));
  repetition.end();
  t.equal((await second).status, 200);
  await booksClosed(db);
  t.equal(await balance(), LEFT);
  await assertEnd(LEFT);
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
