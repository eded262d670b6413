import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { routes } from '../../src/contract/routes.ts';
import { Overload } from '../../src/http/overload.ts';
import { audit } from '../../src/ledger/audit.ts';
import { WorkInProgress } from '../../src/lib/work-in-progress.ts';
import { createLogger } from '../../src/observability/logger.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import type { Gateway, Reply } from '../support/gateway.ts';
import { depositor, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { lockRows } from '../support/row-lock.ts';
import { mp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

/** Unpaid requests are refused at 2 of them in progress, paid ones at 4. */
const BOUNDS = { burst: 4, standing: 4, most: 100 };

async function start(t: Test) {
  const gateway = await startPrepaidGateway(
    t,
    { TRUST_PROXY: '127.0.0.1' },
    { adjust: (config) => ({ ...config, overloadBounds: BOUNDS }) },
  );
  const [blocked, account] = [await gateway.fund(500), await gateway.fund(500)];
  const speak = (id: string | undefined, from = '192.0.2.1', path = '/tts?text=Hello+world') =>
    gateway.call(path, { headers: { 'x-forwarded-for': from, ...(id && { 'x-credit-account': id }) } });
  /** Requests that wait for the database until they are let go, each in progress meanwhile. */
  const occupy = async (count: number) => {
    const lock = await lockRows(t, gateway.databaseUrl, sql`select from account where id = ${blocked} for update`);
    const replies = Array.from({ length: count }, () => speak(blocked));
    await lock.untilWaiting(count);
    return async () => {
      await lock.release();
      return (await Promise.all(replies)).map(({ status }) => status);
    };
  };
  return { gateway, account, speak, occupy };
}

const held = async ({ db }: Gateway) =>
  (await db.selectFrom('transfer').select('id').where('kind', 'in', ['charge', 'spend']).execute()).length;

function assertRefused(reply: Reply): void {
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'TTS_UNAVAILABLE']);
  assert.deepEqual(reply.json.error.details, { transient: true, reason: 'overloaded' });
  assert.ok([1, 2, 3].includes(Number(reply.headers.get('retry-after'))));
}

test('beyond half of the bound only who pays is served, beyond it nobody, and nothing is held', async (t) => {
  const { gateway, account, speak, occupy } = await start(t);
  const release = await occupy(2);
  assertRefused(await speak(undefined));
  assertRefused(await gateway.call(TTS, HELLO));
  assert.equal((await speak(account)).status, 200, 'who pays is served');

  const releaseMore = await occupyMore(t, gateway, speak);
  const before = [await held(gateway), gateway.upstream.requests.length];
  assertRefused(await speak(account));
  assertRefused(await speak(undefined));
  assert.deepEqual([await held(gateway), gateway.upstream.requests.length], before);
  for (const path of ['/', '/docs', '/tts/models', `/credits/${account}`, '/tts/jobs/none']) {
    assert.notEqual((await gateway.call(path)).status, 503, path);
  }
  const ready = await gateway.app.admin.inject({ url: '/readyz', headers: { host: 'localhost' } });
  assert.equal(ready.statusCode, 200);

  assert.deepEqual([await release(), await releaseMore()].flat(), [200, 200, 200, 200]);
  assert.equal((await speak(account)).status, 200);
  await until(async () => (await gateway.call(TTS, HELLO)).status === 402);
  const metrics = await gateway.app.metrics.scrape();
  assert.match(metrics, /^speechgate_shed_requests_total\{class="unpaid",reason="work"\} [1-9]\d*$/m);
  assert.match(metrics, /^speechgate_shed_requests_total\{class="paid",reason="work"\} 1$/m);
  assert.deepEqual(await audit(gateway.db), []);
});

/** Two more requests in progress, of another account. */
async function occupyMore(
  t: Test,
  gateway: Gateway,
  speak: (id: string) => Promise<Reply>,
): Promise<() => Promise<number[]>> {
  const id = await gateway.fund(500);
  const lock = await lockRows(t, gateway.databaseUrl, sql`select from account where id = ${id} for update`);
  const replies = [speak(id), speak(id)];
  await lock.untilWaiting(4);
  return async () => {
    await lock.release();
    return (await Promise.all(replies)).map(({ status }) => status);
  };
}

test('an address whose last credential failed is refused with those who show none', async (t) => {
  const { gateway, account, speak, occupy } = await start(t);
  const guess = () => speak('b0000000-0000-4000-8000-000000000000', '192.0.2.66');
  assert.equal((await guess()).status, 402);
  const release = await occupy(2);
  assertRefused(await guess());
  assert.equal((await speak(account)).status, 200);
  await release();
  assert.equal((await speak(account, '192.0.2.66')).status, 200);
  const releaseAgain = await occupy(2);
  assert.equal((await guess()).status, 402, 'it has shown a good one since');
  await releaseAgain();
  assert.match(
    await gateway.app.metrics.scrape(),
    /^speechgate_shed_requests_total\{class="guess",reason="work"\} 1$/m,
  );
});

test('what was paid before is told however much is in progress, and nothing new is begun', async (t) => {
  const { gateway, account, speak, occupy } = await start(t);
  const payer = await depositor(gateway, 1_000_000n);
  const paid = await payer.sign(TTS, HELLO);
  assert.equal((await gateway.call(TTS, paid)).status, 200);
  const later = (key: string) =>
    gateway.call('/tts?text=Hello+world&async=true', {
      headers: { 'x-credit-account': account, 'idempotency-key': key },
    });
  const job = (await later('first')).json.jobId;
  const release = await occupy(4);
  assertRefused(await speak(account));
  assert.deepEqual([(await gateway.call(TTS, paid)).status, (await later('first')).json.jobId], [409, job]);
  const before = await held(gateway);
  assertRefused(await gateway.call(TTS, await payer.sign(TTS, HELLO)));
  assertRefused(await later('second'));
  assert.equal(await held(gateway), before);
  await release();
});

test('who waits for the provider is not in the way of others', async (t) => {
  const { gateway, account, speak } = await start(t);
  const answers: (() => void)[] = [];
  gateway.upstream.mode = (request, response) => answers.push(() => mp3()(request, response));
  const waiting: Promise<Reply>[] = [];
  for (let call = 1; call <= 6; call++) {
    waiting.push(speak(account));
    await gateway.upstream.waitForRequests(call);
  }
  assert.equal((await gateway.call(TTS, HELLO)).status, 402);
  gateway.upstream.mode = mp3();
  assert.equal((await speak(account)).status, 200);
  for (const answer of answers) answer();
  for (const { status } of await Promise.all(waiting)) assert.equal(status, 200);
});

function startUnit() {
  const inProgress = new WorkInProgress();
  const overload = new Overload({
    ...{ routes, inProgress, overloadBounds: { burst: 100, standing: 10, most: 1000 } },
    ...{ metrics: new Metrics(), logger: createLogger('silent') },
  });
  const [tts] = routes.filter(({ operationId }) => operationId === 'createSpeech');
  const refusesGuess = () =>
    overload.refusesGuess(tts as (typeof routes)[number], { 'x-credit-account': 'a' }, { isGuess: true });
  const response = { writeHead: () => response, end: () => response };
  /** Whether a request of a caller with such headers is handed on. */
  const isHandedOn = (headers: Record<string, string>): boolean => {
    let isTaken = false;
    const handOn = overload.before(() => {
      isTaken = true;
    });
    handOn({ url: '/tts', method: 'POST', headers } as never, response as never);
    return isTaken;
  };
  /** So much work, until it is ended. */
  const work = (count: number) => {
    let end = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const running = Array.from({ length: count }, () => inProgress.run(ended));
    return async () => {
      end();
      await Promise.all(running);
    };
  };
  return { overload, refusesGuess, isHandedOn, work };
}

test('the bound is low while as many requests stay in progress, and high again when they were fewer for as long', async () => {
  const { overload, refusesGuess, work } = startUnit();
  const end = work(20);
  overload.sample();
  const told = Array.from({ length: 11 }, () => {
    overload.sample();
    return refusesGuess();
  });
  assert.deepEqual(told, [...Array.from({ length: 9 }, () => false), true, true]);
  await end();
  overload.sample();
  const endMore = work(20);
  assert.equal(refusesGuess(), true, 'a moment with fewer is no end of it');
  await endMore();
  overload.sample();
  const endLast = work(20);
  assert.equal(refusesGuess(), false);
  await endLast();
});

test('nobody who does not pay is served for a second after somebody was refused who does', async (t) => {
  const { overload, isHandedOn, work } = startUnit();
  t.teardown(() => overload.close());
  const pays = { 'x-credit-account': 'a' };
  const end = work(100);
  assert.equal(isHandedOn(pays), false);
  await end();
  assert.equal(isHandedOn(pays), true);
  for (let samples = 0; samples < 20; samples++) {
    assert.equal(isHandedOn({}), false, `after ${samples} samples`);
    overload.sample();
  }
  assert.equal(isHandedOn({}), true);
});
