import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { mock } from 'node:test';
import { sql } from 'kysely';
import pg from 'pg';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { captureHold } from '../../src/ledger/hold.ts';
import { UnfinishedHolds } from '../../src/payments/unfinished-holds.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { depositor, HELLO, moneyOf, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { runTurn } from '../support/reconcile.ts';
import { OF_PROCESSES } from '../support/recorded-statements.ts';
import { reversalsIn } from '../support/reversals.ts';
import { lockRows } from '../support/row-lock.ts';
import { Drip, mp3, silentMp3, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const PRICE = 198n;
/** More than the kernel takes from a server for a client who doesn't read. */
const LARGE = mp3(1_000_000);

async function startCardGateway(t: Test) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);
  const speak = () => gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  const paid = async () => 5_000_000n - (await gateway.balance(account));
  /** A caller who reads nothing of his answer. */
  const speakToNobody = () => {
    const { hostname, port } = new URL(gateway.url);
    const socket = connect(Number(port), hostname).on('error', () => {});
    t.teardown(() => socket.destroy());
    socket.pause().write(`GET /tts?text=Hello+world HTTP/1.1\r\nhost: x\r\nx-credit-account: ${account}\r\n\r\n`);
    return socket;
  };
  return { gateway, upstream, speak, speakToNobody, paid };
}

const charges = ({ db }: Gateway) =>
  db.selectFrom('transfer').select(['id', 'state']).where('kind', 'in', ['charge', 'spend']).orderBy('id').execute();
const untilPosted = (gateway: Gateway, count: number) =>
  until(async () => (await charges(gateway)).filter(({ state }) => state === 'posted').length === count);
const processes = ({ db }: Gateway) => db.selectFrom('gateway_process').selectAll().orderBy('id').execute();
/** Its last word is that nothing is open. */
const untilAllIsTold = (gateway: Gateway, patienceMs?: number) =>
  until(async () => {
    const [last] = (await charges(gateway)).slice(-1);
    const [process] = await processes(gateway);
    return !!process && !!last && process.finished_below > last.id && process.unfinished.length === 0;
  }, patienceMs);
/** As if it had been silent for long, with the database there. */
const declareDead = ({ db }: Gateway) => sql`update gateway_process set is_dead = true`.execute(db);
const sweep = async (gateway: Gateway) => {
  const { outcome, count } = await runTurn(gateway, 'undelivered');
  assert.equal(outcome, 'done');
  return count;
};

test('what a process has told to be delivered stays charged when it is dead, also for a caller who left (R55)', async (t) => {
  const { gateway, upstream, speak, speakToNobody, paid } = await startCardGateway(t);
  assert.equal((await speak()).status, 200);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const caller = speakToNobody();
  await drip.opened;
  caller.destroy();
  await drip.write(silentMp3(500));
  drip.end();
  await untilPosted(gateway, 2);
  await untilAllIsTold(gateway);
  await declareDead(gateway);
  assert.equal(await sweep(gateway), 0);
  assert.equal(await paid(), 2n * PRICE);
  assert.deepEqual(await processes(gateway), [], 'forgotten');
  assert.deepEqual(await audit(gateway.db), []);
});

test('a process that has told that an answer is open tells within about a second that it is delivered', async (t) => {
  const { gateway, upstream, speak } = await startCardGateway(t);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const answer = speak();
  await drip.opened;
  await until(async () => (await processes(gateway))[0]?.unfinished.length === 1);
  await drip.write(silentMp3(500));
  drip.end();
  assert.equal((await answer).status, 200);
  await untilAllIsTold(gateway, 3_000);
});

test('a dead process: what was not delivered is given back once, by two reconcilers at once, and its answer is broken off', async (t) => {
  const { gateway, upstream, speak, speakToNobody, paid } = await startCardGateway(t);
  assert.equal((await speak()).status, 200);
  await untilAllIsTold(gateway);
  upstream.mode = LARGE;
  const caller = speakToNobody();
  await untilPosted(gateway, 2);
  await declareDead(gateway);
  // The process finds out with its next heartbeat, and sends no more.
  await until(async () => (await reversalsIn(gateway.db)).length === 1);
  caller.resume();
  await once(caller, 'close');
  assert.ok(caller.bytesRead < silentMp3(1_000_000).length);
  const counts = await Promise.all([sweep(gateway), sweep(gateway)].map((count) => count.catch(() => 0)));
  assert.deepEqual(counts, [0, 0]);
  assert.equal(await paid(), PRICE);
  assert.equal((await reversalsIn(gateway.db)).length, 1);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a process that was taken for dead while it spoke delivers nothing, and charges nothing (prepaid)', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign, balance } = await depositor(gateway, 100_000n);
  const drip = new Drip();
  gateway.upstream.mode = drip.mode;
  const answer = gateway.call(TTS, await sign(TTS, HELLO));
  await drip.opened;
  await declareDead(gateway);
  assert.equal(await sweep(gateway), 0, 'pending: its lease may still be long');
  assert.equal((await processes(gateway)).length, 1, 'remembered while it may capture');
  // Each request asks the database whether the process lives; the first after the heartbeat that failed registers again.
  const stranger = await depositor(gateway, 0n);
  await until(async () => {
    assert.equal((await gateway.call(TTS, await stranger.sign(TTS, HELLO))).status, 402);
    return (await processes(gateway)).length === 2;
  });
  await drip.write(silentMp3(500));
  drip.end();
  const reply = await answer;
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'TTS_UNAVAILABLE']);
  assert.deepEqual(moneyOf(reply), ['0', '100000']);
  await until(async () => (await balance()) === 100_000n);
  assert.deepEqual(await reversalsIn(gateway.db), [], 'it was never charged');
  gateway.upstream.mode = mp3();
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200, 'under its new id it serves');
  await sweep(gateway);
  assert.equal((await processes(gateway)).length, 1);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a process that stands still between its last look and the write sends nothing of it, and gives it back', async (t) => {
  t.teardown(() => mock.reset());
  const { gateway, speak, paid } = await startCardGateway(t);
  const prepaid = await startPrepaidGateway(t);
  const { sign, balance } = await depositor(prepaid, 100_000n);
  const { captured } = UnfinishedHolds.prototype;
  const now = performance.now.bind(performance);
  for (const [ask, isGivenBack] of [
    [speak, async () => (await reversalsIn(gateway.db)).length === 1 && (await paid()) === 0n],
    [
      async () => prepaid.call(TTS, await sign(TTS, HELLO)),
      async () => (await reversalsIn(prepaid.db)).length === 1 && (await balance()) === 100_000n,
    ],
  ] as const) {
    mock.method(UnfinishedHolds.prototype, 'captured', function (this: UnfinishedHolds, holdId: bigint) {
      const mayDeliver = captured.call(this, holdId);
      mock.method(performance, 'now', () => now() + 36_000);
      return mayDeliver;
    });
    await assert.rejects(ask());
    mock.reset();
    await until(isGivenBack);
  }
  assert.deepEqual(await audit(gateway.db), []);
  assert.deepEqual(await audit(prepaid.db), []);
});

test('a process that stood still breaks off what it had begun to send before it asks whether it lives', async (t) => {
  t.teardown(() => mock.reset());
  const { gateway, upstream, speakToNobody, paid } = await startCardGateway(t);
  upstream.mode = LARGE;
  const accepted = once(gateway.app.server.server, 'connection');
  const caller = speakToNobody();
  const [served] = (await accepted) as [Socket];
  await untilPosted(gateway, 1);
  const taken = sql`update gateway_process set is_dead = true`;
  const lock = await lockRows(t, gateway.databaseUrl, taken);
  const now = performance.now.bind(performance);
  mock.method(performance, 'now', () => now() + 36_000);
  await until(() => served.destroyed, 5_000);
  caller.resume();
  await once(caller, 'close');
  assert.ok(caller.bytesRead < silentMp3(1_000_000).length);
  mock.reset();
  await lock.release();
  await until(async () => (await reversalsIn(gateway.db)).length === 1);
  assert.equal(await paid(), 0n);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a silent process is suspected first, and dead only if it stays silent; one word clears it', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const add = async (heartbeat: string, suspected: string | null) => {
    const { rows } = await sql<{ id: number }>`
      insert into gateway_process (heartbeat_at, suspected_at, finished_below)
      values (now() - ${heartbeat}::interval, now() - ${suspected}::interval, 1) returning id`.execute(gateway.db);
    const { id } = rows[0] as { id: number };
    await charge(id);
    return id;
  };
  const charge = async (processId: number | null) => {
    const held = await placeCardHold(gateway.db, account, 1n, 60, { processId });
    assert.ok(held.outcome === 'held' && (await captureHold(gateway.db, held.hold)));
  };
  const living = await add('5 seconds', null);
  const silent = await add('1 hour', null);
  await add('1 hour', '1 hour');
  const lately = await add('21 seconds', '5 seconds');
  await charge(null);
  assert.equal(await sweep(gateway), 1, 'that of the suspected one alone, and none of no process');
  const left = await processes(gateway);
  assert.deepEqual(
    left.map(({ id, suspected_at, is_dead }) => [id, suspected_at !== null, is_dead]),
    [
      [living, false, false],
      [silent, true, false],
      [lately, true, false],
    ],
  );
  assert.equal(await sweep(gateway), 0, 'suspected a moment ago');
  assert.deepEqual(await reversalsIn(gateway.db), [{ kind: 'charge', amount: 1n, reason: 'process_died' }]);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a process that stops with everything delivered leaves nothing to sweep', async (t) => {
  const { gateway, speak } = await startCardGateway(t);
  assert.equal((await speak()).status, 200);
  await gateway.app.close();
  assert.deepEqual(await processes(gateway), []);
});

test('marks of delivery cost a request nothing: one statement holds, one captures, whatever the count', async (t) => {
  const { speak } = await startCardGateway(t);
  assert.equal((await speak()).status, 200);
  t.teardown(() => mock.reset());
  const query = mock.method(pg.Client.prototype, 'query');
  for (let count = 0; count < 5; count++) assert.equal((await speak()).status, 200);
  const texts = query.mock.calls.map(({ arguments: [statement] }) => (statement as { text?: string })?.text ?? '');
  const about = (table: string) => texts.filter((text) => text.includes(table)).length;
  assert.deepEqual([about('transfer'), about('rate_window')], [2 * 5, 5]);
  const upkeep = texts.filter((text) => OF_PROCESSES.test(text)).length;
  assert.equal(texts.length - upkeep, 2 * 5);
});
