import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { secondsFromNow } from '../../src/db/expressions.ts';
import { audit } from '../../src/ledger/audit.ts';
import { audioEnd } from '../../src/speech/audio-end.ts';
import type { AudioType } from '../../src/speech/provider.ts';
import { booksClosed } from '../support/books.ts';
import { catalogWith } from '../support/catalog-file.ts';
import { type LogLine, startGateway } from '../support/gateway.ts';
import { sweepVictim } from '../support/kill.ts';
import { runTurn } from '../support/reconcile.ts';
import { WAV_HEADER_BYTES } from '../support/silent-audio.ts';
import { ControlledStream, silentMp3, silentWav } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import { bench, CENTS, charge, FUNDED, PAID } from './streaming.ts';

const BROKEN_OFF = /aborted|ECONNRESET|socket hang up/;

const PIECE = silentMp3(120);
/** Between two pieces of audio: far less than the silence that is allowed. */
const PIECE_EVERY_MS = 50;
/** Renewed after a third of it, and given up after two thirds. */
const LEASE_SECONDS = 6;

/** Pours pieces out without a silence while the condition holds; tells everything that was poured. */
async function pourWhile(drip: ControlledStream, condition: () => boolean | Promise<boolean>): Promise<Buffer> {
  await drip.opened;
  const poured: Buffer[] = [];
  while (await condition()) {
    await drip.write(PIECE).catch(() => {});
    poured.push(PIECE);
    await sleep(PIECE_EVERY_MS);
  }
  return Buffer.concat(poured);
}

test('a stream silent for SPEECH_TIMEOUT_MS is aborted and not charged', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = assert.rejects(speak(), BROKEN_OFF);
  await drip.opened;
  await drip.write(PIECE);
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  t.strictSame(await audit(gateway.db), []);
});

test('with charactersPerSecond, silence is aborted at its end and not charged', async (t) => {
  const CATALOG_FILE = await catalogWith(t, { charactersPerSecond: { min: 1, max: 50 } });
  const { gateway, account, drip, speak } = await bench(t, { CATALOG_FILE });
  const reply = assert.rejects(speak(), BROKEN_OFF);
  await drip.opened;
  await drip.write(PIECE);
  await until(async () => (await charge(gateway)).state === 'pending');
  drip.end();
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  t.strictSame(await audit(gateway.db), []);
});

test('audio that does not start within SPEECH_TIMEOUT_MS is 503 and not charged', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, { SPEECH_TIMEOUT_MS: '400' });
  const reply = await speak();
  await drip.opened;
  t.strictSame([reply.status, reply.json.error.code], [503, 'TTS_UNAVAILABLE']);
  t.equal(await gateway.balance(account), FUNDED);
  t.strictSame(await audit(gateway.db), []);
});

test('a stream that never ends is aborted at the total timeout and not charged', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { totalMs: 2000 });
  let isOver = false;
  const reply = assert.rejects(speak(), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await pourWhile(drip, () => !isOver);
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  t.strictSame(await audit(gateway.db), []);
});

test('audio may stream for longer than SPEECH_TIMEOUT_MS, and its lease is renewed', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { leaseSeconds: LEASE_SECONDS });
  const reply = speak();
  await drip.opened;
  const placed = await charge(gateway);
  // Renewals begin in the second third of the lease.
  const poured = await pourWhile(drip, async () => {
    const { state, lease_until } = await charge(gateway);
    assert.equal(state, 'pending');
    return (lease_until as Date).getTime() === (placed.lease_until as Date).getTime();
  });
  drip.end();
  t.strictSame((await reply).bytes, poured);
  await booksClosed(gateway.db);
  t.equal(await gateway.balance(account), PAID);
  t.strictSame(await audit(gateway.db), []);
});

test('a stream is aborted before a lease that cannot be renewed ends', async (t) => {
  const outside = await startGateway(t);
  const proxy = await startTcpProxy(t, outside.databaseUrl);
  const options = { databaseUrl: proxy.url, leaseSeconds: LEASE_SECONDS };
  const { drip, upstream, gateway } = await bench(t, {}, options);
  const account = await outside.fund(CENTS);
  let isOver = false;
  const headers = { 'x-credit-account': account };
  const reply = assert.rejects(gateway.call('/tts?text=Hello+world', { headers }), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await drip.opened;
  proxy.freeze();
  await outside.db
    .updateTable('transfer')
    .set({ lease_until: secondsFromNow(LEASE_SECONDS) })
    .where('state', '=', 'pending')
    .execute();
  await pourWhile(drip, () => !isOver);
  await reply;
  t.equal(await upstream.requests[0]?.closed, 'aborted');
  t.equal((await runTurn(outside, 'expired_holds')).count, 0, 'nobody could have voided it meanwhile');
  proxy.restore();
  await sweepVictim(outside);
  t.equal(await outside.balance(account), FUNDED);
  t.strictSame(await audit(outside.db), []);
});

test('shutdown waits for a stream, for at most SPEECH_TIMEOUT_MS', async (t) => {
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
  t.equal(await gateway.balance(account), FUNDED);
  t.strictSame(await audit(gateway.db), []);
});

/** The head and the body of an answer whose connection is reset, and the error that tells so. */
async function cutAnswer(url: string, account: string, version: string, bytes: number, breakOff: () => void) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let received = Buffer.alloc(0);
  const over = new Promise<string>((resolve) => {
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(String(error.code)));
    socket.once('end', () => resolve('FIN'));
  });
  socket.on('data', (bytes) => {
    received = Buffer.concat([received, bytes]);
  });
  socket.write(`GET /tts?text=Hello+world HTTP/${version}\r\nhost: a\r\nx-credit-account: ${account}\r\n\r\n`);
  const bodyAt = () => received.indexOf('\r\n\r\n') + 4;
  await until(() => bodyAt() > 4 && received.length - bodyAt() >= bytes);
  breakOff();
  const end = await over;
  const at = bodyAt();
  const [head, body] = [received.toString('latin1', 0, at), received.subarray(at)];
  return { end, head, body: version === '1.0' ? body : unchunked(body) };
}

function unchunked(bytes: Buffer): Buffer {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const line = bytes.indexOf('\r\n', at);
    const size = Number.parseInt(bytes.toString('latin1', at, line), 16);
    chunks.push(bytes.subarray(line + 2, line + 2 + size));
    at = line + 4 + size;
  }
  return Buffer.concat(chunks);
}

const UNSIZED_WAV = silentWav(120);
for (const at of [4, 40]) UNSIZED_WAV.writeUInt32LE(0xffff_ffff, at);

const BREAKS: readonly (readonly [
  what: string,
  failure: string,
  type: AudioType,
  breakOff: (drip: ControlledStream) => void,
])[] = [
  ['a reset', 'broken_off', 'audio/mpeg', (drip) => drip.reset()],
  ['damaged frames', 'damaged', 'audio/mpeg', (drip) => void drip.write(Buffer.alloc(100, 1)).catch(() => {})],
  ['half a frame', 'truncated', 'audio/mpeg', (drip) => void drip.write(PIECE.subarray(0, 100)).then(() => drip.end())],
  ['a reset in a WAV without sizes', 'broken_off', 'audio/wav', (drip) => drip.reset()],
];

test('R55: a stream that breaks off is voided, then reset inside a frame, and its cause is logged', async (t) => {
  const { gateway, upstream, account } = await bench(t, { LOG_LEVEL: 'warn' });
  for (const [what, failure, contentType, breakOff] of BREAKS) {
    for (const version of ['1.0', '1.1']) {
      const drip = new ControlledStream({ contentType });
      upstream.mode = drip.mode;
      const [one, two] =
        contentType === 'audio/wav' ? [UNSIZED_WAV, UNSIZED_WAV.subarray(WAV_HEADER_BYTES)] : [PIECE, PIECE];
      const sent = one.length + two.length;
      const logged = gateway.log.length;
      void drip.opened.then(async () => {
        await drip.write(one);
        await drip.write(two);
      });
      const cutOff = () => breakOff(drip);
      const { end, head, body } = await cutAnswer(gateway.url, account, version, sent - 1, cutOff);
      const message = `${what}, HTTP/${version}`;
      t.equal(end, 'ECONNRESET', message);
      t.equal(await gateway.balance(account), FUNDED, 'the balance shows the void as soon as the caller can ask');
      const follower = audioEnd(contentType);
      follower.push(body);
      t.equal(follower.end, 'cut', message);
      t.ok(body.length >= sent - 1, 'only a byte is held back');
      t.match(head, /^HTTP\/1\.1 200 /);
      t.match(head, /x-accel-buffering: no/i);
      t.notMatch(head, /^trailer:/im);
      const [line] = gateway.log.slice(logged).filter(({ msg }) => msg.startsWith('the audio ended early'));
      const traceId = /x-trace-id: (\S+)/i.exec(head)?.[1];
      const { err, ...more } = line as { err?: { failure?: string; upstream?: string } } & LogLine;
      t.strictSame([err?.failure, err?.upstream, more.traceId], [failure, 'default', traceId], message);
    }
  }
  const { server } = gateway.app.server;
  const connected = new Promise((resolve) => server.once('connection', resolve));
  const stalled = new ControlledStream();
  upstream.mode = stalled.mode;
  void stalled.opened.then(() => stalled.write(PIECE));
  const timeOut = async () => server.emit('timeout', await connected);
  const { end } = await cutAnswer(gateway.url, account, '1.0', PIECE.length - 1, () => void timeOut());
  t.equal(end, 'ECONNRESET', 'a caller who stalls');
  stalled.end();
  await booksClosed(gateway.db);
  t.equal(await gateway.balance(account), PAID, 'a caller who stalls has paid');

  const metrics = (await gateway.app.admin.inject({ url: '/metrics' })).body;
  for (const [reason, count] of [
    ['broken_off', 4],
    ['damaged', 2],
    ['truncated', 2],
  ]) {
    t.ok(metrics.includes(`speechgate_upstream_failures_total{upstream="default",reason="${reason}"} ${count}\n`));
  }
  t.strictSame(await audit(gateway.db), []);
});
