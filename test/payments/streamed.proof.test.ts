import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import type { StreamingConfig } from '../../src/settings/speech.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { runTurn } from '../support/reconcile.ts';
import { Drip, mp3, type StubUpstream, silentMp3, startStubUpstream } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import { waitingBytes } from '../support/waiting-bytes.ts';

const BROKEN_OFF = /aborted|ECONNRESET|socket hang up/;
const CENTS = 500;
const FUNDED = 5_000_000n;
const PAID = FUNDED - 198n;
const PIECE = silentMp3(120);
/** Between two pieces of audio: far less than the silence that is allowed. */
const PIECE_EVERY_MS = 100;

interface Bench {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
  readonly account: string;
  readonly drip: Drip;
  speak(): ReturnType<Gateway['call']>;
}

async function bench(
  t: Test,
  env: Record<string, string> = {},
  { databaseUrl, ...streaming }: Partial<StreamingConfig> & { databaseUrl?: string } = {},
): Promise<Bench> {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(
    t,
    { SPEECH_BASE_URL: upstream.url, SPEECH_TIMEOUT_MS: '2500', ...env },
    {
      ...(databaseUrl !== undefined && { databaseUrl }),
      adjust: (config) => ({
        ...config,
        speech: config.speech && { ...config.speech, streaming: { ...config.speech.streaming, ...streaming } },
      }),
    },
  );
  const account = await gateway.fund(CENTS);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const speak = () => gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  return { gateway, upstream, account, drip, speak };
}

/** Pours pieces out without a silence while the condition holds; tells everything that was poured. */
async function pourWhile(drip: Drip, condition: () => boolean | Promise<boolean>): Promise<Buffer> {
  await drip.opened;
  const poured: Buffer[] = [];
  while (await condition()) {
    await drip.write(PIECE).catch(() => {});
    poured.push(PIECE);
    await sleep(PIECE_EVERY_MS);
  }
  return Buffer.concat(poured);
}

const forMs = (ms: number) => {
  const startedAt = performance.now();
  return () => performance.now() - startedAt < ms;
};

const charge = ({ db }: Gateway) =>
  db.selectFrom('transfer').selectAll().where('kind', '=', 'charge').executeTakeFirstOrThrow();

const isPending = async (gateway: Gateway) => (await charge(gateway)).state === 'pending';

test('audio that flows past SPEECH_TIMEOUT_MS is delivered whole, and paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = speak();
  const poured = await pourWhile(drip, forMs(6000));
  drip.end();
  assert.deepEqual((await reply).bytes, poured);
  assert.equal(await gateway.balance(account), PAID);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a silence of SPEECH_TIMEOUT_MS within the audio breaks it off, and nothing is paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = assert.rejects(speak(), BROKEN_OFF);
  await drip.opened;
  await drip.write(PIECE);
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('audio that does not begin within SPEECH_TIMEOUT_MS is 503, and nothing is paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, { SPEECH_TIMEOUT_MS: '400' });
  const reply = await speak();
  await drip.opened;
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'TTS_UNAVAILABLE']);
  assert.equal(await gateway.balance(account), FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('an upstream that drips for ever is broken off at the total bound, and nothing is paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { totalMs: 4000 });
  let isOver = false;
  const reply = assert.rejects(speak(), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await pourWhile(drip, () => !isOver);
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('while audio flows the lease of its hold is renewed: reconcilers leave the hold alone', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { leaseSeconds: 6 });
  const reply = speak();
  await drip.opened;
  const placed = await charge(gateway);
  let isRenewed = false;
  const poured = await pourWhile(drip, async () => {
    await runTurn(gateway, 'expired_holds');
    const { state, lease_until } = await charge(gateway);
    assert.equal(state, 'pending');
    const past = (placed.lease_until as Date).getTime() + 500;
    isRenewed = (lease_until as Date).getTime() > past && Date.now() > past;
    return !isRenewed;
  });
  drip.end();
  assert.deepEqual((await reply).bytes, poured);
  assert.equal(await gateway.balance(account), PAID);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a plain request renews nothing', async (t) => {
  const { gateway, drip, speak } = await bench(t);
  const reply = speak();
  await drip.opened;
  const placed = await charge(gateway);
  await drip.write(PIECE);
  drip.end();
  assert.equal((await reply).status, 200);
  const { state, lease_until } = await charge(gateway);
  assert.deepEqual([state, lease_until], ['posted', placed.lease_until]);
});

test('a hold that was lost while its audio flows breaks the stream off before its end, and is not paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { leaseSeconds: 3 });
  let isOver = false;
  const reply = assert.rejects(speak(), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await pourWhile(drip, forMs(300));
  await gateway.db
    .updateTable('transfer')
    .set({ lease_until: new Date(0) })
    .where('state', '=', 'pending')
    .execute();
  assert.deepEqual(await runTurn(gateway, 'expired_holds').then(({ name }) => name), 'expired_holds');
  assert.equal(await gateway.balance(account), FUNDED);
  await pourWhile(drip, () => !isOver);
  await reply;
  assert.equal(await gateway.balance(account), FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a lease that can not be renewed, as the database is away, breaks the stream off before it has passed', async (t) => {
  const outside = await startGateway(t);
  const proxy = await startTcpProxy(t, outside.databaseUrl);
  const { drip, upstream, gateway } = await bench(t, {}, { leaseSeconds: 6, databaseUrl: proxy.url });
  const account = await outside.fund(CENTS);
  let isOver = false;
  const headers = { 'x-credit-account': account };
  const reply = assert.rejects(gateway.call('/tts?text=Hello+world', { headers }), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await pourWhile(drip, forMs(300));
  proxy.freeze();
  await pourWhile(drip, () => !isOver);
  await reply;
  assert.equal(await upstream.requests[0]?.closed, 'aborted');
  assert.equal(await isPending(outside), true, 'nobody could have voided it meanwhile');
  proxy.restore();
  await until(async () => {
    await runTurn(outside, 'expired_holds');
    return (await outside.balance(account)) === FUNDED;
  });
  assert.deepEqual(await audit(outside.db), []);
});

test('a stop waits for audio that flows, and for no longer than SPEECH_TIMEOUT_MS', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = assert.rejects(speak(), BROKEN_OFF);
  await drip.opened;
  await drip.write(PIECE);
  let isClosed = false;
  const closing = gateway.app.close().then(() => {
    isClosed = true;
  });
  await pourWhile(drip, () => !isClosed);
  await closing;
  await reply;
  assert.equal(await gateway.balance(account), FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

const MIB = 1024 * 1024;
/** 12 MB, of which the operating system's buffers take less than a half. */
const MUCH = mp3(750_000);

/** A caller who reads nothing of the audio; resolves once it was spoken to its end. */
async function stall(t: Test, { gateway, account, upstream }: Bench): Promise<IncomingMessage> {
  upstream.mode = MUCH;
  const outgoing = request(`${gateway.url}/tts?text=Hello+world`, { headers: { 'x-credit-account': account } });
  t.teardown(() => outgoing.destroy());
  outgoing.on('error', () => {}).end();
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  incoming.on('error', () => {}).pause();
  await until(async () => !(await isPending(gateway)));
  assert.equal(await gateway.balance(account), PAID, 'who does not read has paid');
  return incoming;
}

test('R55: while too much audio waits for who does not read, new work is 503; it is freed when they leave', async (t) => {
  const started = await bench(t, { SPEECH_TIMEOUT_MS: '45000' }, { waitingBytes: 6.5 * MIB });
  const { gateway, upstream, account, speak } = started;
  const stalled = await stall(t, started);
  assert.ok((await waitingBytes(gateway)) >= 6.5 * MIB);

  const refused = await speak();
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'TTS_UNAVAILABLE']);
  assert.ok(Number(refused.headers.get('retry-after')) > 0);
  assert.equal(upstream.requests.length, 1, 'the provider is not asked');
  assert.equal(await gateway.balance(account), PAID);

  stalled.destroy();
  await until(async () => (await waitingBytes(gateway)) === 0);
  upstream.mode = mp3();
  assert.equal((await speak()).status, 200);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R55: at twice the bound, the caller for whom the most waits is cut off, and has paid', async (t) => {
  const started = await bench(t, { SPEECH_TIMEOUT_MS: '45000' }, { waitingBytes: MIB });
  const { gateway } = started;
  const stalled = await stall(t, started);
  const cut = new Promise((resolve) => stalled.once('close', resolve));
  stalled.resume();
  await cut;
  assert.equal(stalled.complete, false);
  assert.equal(await waitingBytes(gateway), 0);
  assert.deepEqual(await audit(gateway.db), []);
});
