import assert from 'node:assert/strict';
import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { routes } from '../../src/contract/routes.ts';
import { Overload } from '../../src/http/overload.ts';
import { audit } from '../../src/ledger/audit.ts';
import { WorkInProgress } from '../../src/lib/work-in-progress.ts';
import { createLogger } from '../../src/observability/logger.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { type Tracing, traceWith } from '../../src/observability/tracing.ts';
import type { Gateway, Reply } from '../support/gateway.ts';
import { depositor, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { connectRaw, exchange, requestBytes } from '../support/raw-http.ts';
import { lockRows } from '../support/row-lock.ts';
import { mp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

/** Two are at work at a time. Unpaid requests are refused while one waits, paid ones while two do. */
const BOUNDS = {
  leastAtOnce: 2,
  mostAtOnce: 2,
  patienceMs: 0,
  idlePatienceMs: 0,
  leastWaiting: 2,
  mostWaiting: 2,
  most: 100,
};

async function start(t: Test) {
  const gateway = await startPrepaidGateway(
    t,
    { TRUST_PROXY: '127.0.0.1' },
    { adjust: (config) => ({ ...config, overloadBounds: BOUNDS }) },
  );
  const [blocked, account] = [await gateway.fund(500), await gateway.fund(500)];
  const speak = (id: string | undefined, from = '192.0.2.1', path = '/tts?text=Hello+world') =>
    gateway.call(path, { headers: { 'x-forwarded-for': from, ...(id && { 'x-credit-account': id }) } });
  /** Two requests that wait for the database until they are let go, and others of the account behind them. */
  const occupy = async (waiting: number) => {
    const { inProgress } = gateway.app;
    await until(() => inProgress.size === 0);
    const lock = await lockRows(t, gateway.databaseUrl, sql`select from account where id = ${blocked} for update`);
    const replies = Array.from({ length: 2 }, () => speak(blocked));
    await lock.untilWaiting(2);
    const behind = Array.from({ length: waiting }, () => speak(account));
    await until(() => inProgress.size === 2 + waiting);
    return async () => {
      await lock.release();
      return (await Promise.all([...replies, ...behind])).map(({ status }) => status);
    };
  };
  return { gateway, account, speak, occupy };
}

const held = async ({ db }: Gateway) =>
  (await db.selectFrom('transfer').select('id').where('kind', 'in', ['charge', 'spend']).execute()).length;

function assertRefused(reply: Reply): void {
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'TTS_UNAVAILABLE']);
  const { payment, ...details } = reply.json.error.details;
  assert.deepEqual(details, { transient: true, reason: 'overloaded' });
  assert.notEqual(payment?.state, 'charged');
  assert.ok([1, 2, 3].includes(Number(reply.headers.get('retry-after'))));
}

test('who pays begins in his turn; while he waits nobody else is served, beyond the bound nobody is, and nothing is held', async (t) => {
  const { gateway, account, speak, occupy } = await start(t);
  const release = await occupy(0);
  assert.equal((await speak(undefined)).status, 402, 'nobody waits');
  const [first, second] = [speak(account), speak(account)];
  await until(() => gateway.app.inProgress.size === 4);

  const before = [await held(gateway), gateway.upstream.requests.length];
  assertRefused(await speak(undefined));
  assertRefused(await gateway.call(TTS, HELLO));
  assertRefused(await speak(account));
  assert.deepEqual([await held(gateway), gateway.upstream.requests.length], before);
  for (const path of ['/', '/docs', '/tts/models', `/credits/${account}`, '/tts/jobs/none']) {
    assert.notEqual((await gateway.call(path)).status, 503, path);
  }
  const ready = await gateway.app.admin.inject({ url: '/readyz', headers: { host: 'localhost' } });
  assert.equal(ready.statusCode, 200);

  assert.deepEqual([...(await release()), (await first).status, (await second).status], [200, 200, 200, 200]);
  assert.equal((await speak(account)).status, 200);
  await until(async () => (await gateway.call(TTS, HELLO)).status === 402);
  const metrics = await gateway.app.metrics.scrape();
  assert.match(metrics, /^speechgate_shed_requests_total\{class="unpaid",reason="work"\} [1-9]\d*$/m);
  assert.match(metrics, /^speechgate_shed_requests_total\{class="paid",reason="work"\} 1$/m);
  assert.deepEqual(await audit(gateway.db), []);
});

test('who leaves while he waits is not charged, and has a line among the metrics', async (t) => {
  const { gateway, account, speak, occupy } = await start(t);
  const release = await occupy(0);
  const leaving = new AbortController();
  const reply = fetch(`${gateway.url}/tts?text=Hello+world`, {
    headers: { 'x-credit-account': account },
    signal: leaving.signal,
  });
  await until(() => gateway.app.inProgress.size === 3);
  leaving.abort();
  await assert.rejects(reply);
  await until(() => gateway.app.inProgress.size === 2);
  await release();
  assert.equal((await speak(account)).status, 200);
  await until(() => gateway.app.inProgress.size === 0);
  assert.equal(await held(gateway), 3);
  assert.match(
    await gateway.app.metrics.scrape(),
    /_count\{operation="getSpeech",status="none",end="caller_left"\} 1$/m,
  );
});

test('requests that are refused before their work begins make room again', async (t) => {
  const { gateway, account } = await start(t);
  const headers = { 'x-credit-account': account };
  const json = { ...headers, 'content-type': 'application/json' };
  const refused = [
    gateway.call('/tts?text=', { headers }),
    gateway.call('/tts', { method: 'POST', headers: json, body: '{' }),
    gateway.call('/tts', { method: 'POST', headers: json, body: JSON.stringify({ text: 'a'.repeat(70_000) }) }),
    gateway.call('/tts', { method: 'POST', headers: { ...headers, 'content-type': 'text/html' }, body: 'Hello' }),
  ];
  for (const [index, status] of [400, 400, 413, 415].entries()) assert.equal((await refused[index])?.status, status);
  await until(() => gateway.app.inProgress.size === 0);
  assert.equal(gateway.app.inProgress.active, 0);
});

test('bodies that do not arrive keep nobody from being served', async (t) => {
  const { gateway, account, speak } = await start(t);
  const post = requestBytes('/tts', { method: 'POST', headers: { 'x-credit-account': account }, json: {} });
  let ended = 0;
  for (let count = 0; count < 2; count++) {
    const { socket, answers } = await connectRaw(gateway.url);
    const over = answers.then(
      () => ended++,
      () => ended++,
    );
    t.teardown(async () => {
      socket.destroy();
      await over;
    });
    socket.write(post.slice(0, -1));
  }
  await until(() => gateway.app.inProgress.size === 2);
  assert.equal((await speak(account)).status, 200);
  assert.equal(ended, 0, 'they are still arriving');
});

test('who waits is served when the service stops, also behind others on one connection', async (t) => {
  const { gateway, account, occupy } = await start(t);
  const release = await occupy(0);
  const { socket, answers } = await connectRaw(gateway.url);
  socket.write(requestBytes('/tts?text=Hello', { headers: { 'x-credit-account': account } }).repeat(2));
  await until(() => gateway.app.inProgress.size === 4);
  const closed = gateway.app.close();
  await release();
  assert.deepEqual(
    (await answers).map(({ status }) => status),
    [200, 200],
  );
  await closed;
});

test('another spelling of the path is no way past those who wait', async (t) => {
  const { gateway, account, occupy } = await start(t);
  const release = await occupy(2);
  const headers = { 'x-credit-account': account, connection: 'close' };
  for (const path of ['/%74ts?text=Hello', 'http://a/t%74s?text=Hello']) {
    const [answer] = await exchange(gateway.url, requestBytes(path, { headers }));
    assert.equal(answer?.status, 503, path);
  }
  await release();
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
  const release = await occupy(2);
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

const speechRequest = (headers: Record<string, string>) =>
  ({ url: '/tts', method: 'POST', headers, socket: {} }) as unknown as IncomingMessage;

const UNTRACED: Tracing = {
  traceparent: () => undefined,
  bind: (run) => run,
  goOn: (_from, _span, work) => work(),
  place: () => ({}) as never,
  share: (_places, work) => work(),
};

function startUnit({ mostWaiting }: { mostWaiting: number }) {
  const inProgress = new WorkInProgress();
  const overload = new Overload({
    ...{ routes, inProgress, overloadBounds: { ...BOUNDS, mostWaiting } },
    ...{ metrics: new Metrics(), logger: createLogger('silent') },
  });
  const response = Object.assign(new EventEmitter(), { writeHead: () => response, end: () => response });
  /** Whether a request of a caller with such headers is handed on. */
  const isHandedOn = (headers: Record<string, string>): boolean => {
    let isTaken = false;
    const handOn = overload.before(() => {
      isTaken = true;
    });
    handOn(speechRequest(headers), response as never);
    return isTaken;
  };
  /** Two are at work, and one waits. */
  const crowd = () => {
    inProgress.came();
    inProgress.came();
    isHandedOn({ 'x-credit-account': 'a' });
  };
  return { overload, inProgress, response, isHandedOn, crowd };
}

test('an address whose last credential failed is refused with those who show none', async (t) => {
  const { overload, isHandedOn, crowd } = startUnit({ mostWaiting: 10 });
  t.teardown(() => overload.close());
  const lastFailed = new Set(['192.0.2.66']);
  overload.start((address) => lastFailed.has(address));
  const tts = routes.find(({ operationId }) => operationId === 'createSpeech') as (typeof routes)[number];
  const headers = { 'x-credit-account': 'b', 'x-forwarded-for': '192.0.2.66' };
  const refusesGuess = (isGuess: boolean) =>
    overload.refusesGuess(tts, { headers, socket: {} } as never, { address: '192.0.2.66', isGuess });
  assert.equal(refusesGuess(true), false, 'there is room');
  crowd();
  assert.equal(overload.waiting, 1);
  isHandedOn(headers);
  assert.equal(overload.waiting, 2, 'nothing is known of it: it waits with those who pay');
  assert.deepEqual([refusesGuess(false), refusesGuess(true)], [false, true]);
  isHandedOn(headers);
  assert.equal(overload.waiting, 2, 'it is known by now, and refused');
  lastFailed.clear();
  isHandedOn(headers);
  assert.equal(overload.waiting, 3, 'it has shown a good one since');
});

test('who pays does not wait for those who do not', (t) => {
  const { overload, inProgress, isHandedOn } = startUnit({ mostWaiting: 1 });
  t.teardown(() => overload.close());
  for (let count = 0; count < 10; count++) overload.follow({} as never, new Promise(() => {}));
  assert.deepEqual([inProgress.size, inProgress.active], [10, 0]);
  assert.ok(isHandedOn({ 'x-credit-account': 'a' }));
  t.end();
});

test('who has waited begins at his own place in the trace, not at that of who made room', async (t) => {
  traceWith({ ...UNTRACED, bind: (run) => AsyncResource.bind(run as never) as never });
  t.teardown(() => traceWith(UNTRACED));
  const { overload, inProgress, crowd } = startUnit({ mostWaiting: 10 });
  t.teardown(() => overload.close());
  const place = new AsyncLocalStorage<string>();
  const begun: (string | undefined)[] = [];
  const handOn = overload.before(() => void begun.push(place.getStore()));
  crowd();
  place.run('own', () => handOn(speechRequest({ 'x-credit-account': 'b' }), new EventEmitter() as never));
  place.run('of another', () => {
    inProgress.left();
    inProgress.left();
  });
  assert.deepEqual(begun, ['own']);
  t.end();
});

test('nobody who does not pay is served for a second after somebody was refused who does', async (t) => {
  const { overload, inProgress, response, isHandedOn, crowd } = startUnit({ mostWaiting: 1 });
  t.teardown(() => overload.close());
  const pays = { 'x-credit-account': 'a' };
  crowd();
  assert.equal(isHandedOn(pays), false, 'it is refused');
  response.emit('close');
  inProgress.left();
  inProgress.left();
  assert.equal(isHandedOn(pays), true);
  for (let samples = 0; samples < 20; samples++) {
    assert.equal(isHandedOn({}), false, `after ${samples} samples`);
    overload.sample();
  }
  assert.equal(isHandedOn({}), true);
});
