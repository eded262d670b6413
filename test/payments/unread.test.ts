import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { type Test, test } from 'tap';
import type { Config } from '../../src/config/config.ts';
import { audit } from '../../src/ledger/audit.ts';
import { sendUnread } from '../support/lost-answer.ts';
import { PAYERS, PRICE } from '../support/payers.ts';
import { ControlledStream, mp3, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { waitingBytes } from '../support/waiting-bytes.ts';
import { type Bench, bench, isPending, PAID } from './streaming.ts';

const MIB = 1024 * 1024;
/** 12 MB, of which the operating system's buffers take less than a half. */
const MUCH = mp3(750_000);

/** A caller who reads nothing at all, so that the system's buffer for received bytes does not grow. Resolves once stalled. */
async function stall(
  t: Test,
  { gateway, account, upstream }: Bench,
  isStalled: () => Promise<boolean>,
): Promise<Socket> {
  upstream.mode = MUCH;
  const headers = { 'x-credit-account': account };
  const socket = await sendUnread(gateway.url, '/tts?text=Hello+world', { headers });
  t.teardown(() => socket.destroy());
  await until(() => upstream.requests.length > 0);
  await until(isStalled);
  assert.equal(await gateway.balance(account), PAID);
  return socket;
}

test('R55: with too much unread audio, new work is 503 until readers disconnect', async (t) => {
  const started = await bench(t, { SPEECH_TIMEOUT_MS: '45000' }, { waitingBytes: 6.5 * MIB });
  const { gateway, upstream, account, speak } = started;
  const stalled = await stall(t, started, async () => (await waitingBytes(gateway)) >= 6.5 * MIB);

  const refused = await speak();
  t.strictSame([refused.status, refused.json.error.code], [503, 'TTS_UNAVAILABLE']);
  t.ok(Number(refused.headers.get('retry-after')) > 0);
  t.equal(upstream.requests.length, 1, 'the provider is not asked');
  t.equal(await gateway.balance(account), PAID);

  stalled.destroy();
  await until(async () => (await waitingBytes(gateway)) === 0);
  await until(async () => !(await isPending(gateway)));
  t.equal(await gateway.balance(account), PAID, 'a caller who disconnects has paid');
  upstream.mode = mp3();
  t.equal((await speak()).status, 200);
  t.strictSame(await audit(gateway.db), []);
});

test('R55: at twice the limit, the slowest reader is disconnected and charged', async (t) => {
  const started = await bench(t, { SPEECH_TIMEOUT_MS: '45000' }, { waitingBytes: MIB });
  const { gateway } = started;
  const stalled = await stall(t, started, async () => !(await isPending(gateway)));
  let received = '';
  stalled.on('data', (chunk) => {
    received = (received + chunk.toString('latin1')).slice(-16);
  });
  const closed = new Promise((resolve) => stalled.once('close', resolve));
  stalled.resume();
  await closed;
  t.ok(!received.endsWith('\r\n0\r\n\r\n'), 'no end of the chunked body');
  t.equal(await waitingBytes(gateway), 0);
  t.strictSame(await audit(gateway.db), []);
});

/** 12 MB, as a whole. */
const AUDIO = silentMp3(750_000);
const PIECE = silentMp3(500);

const withLimit =
  (waitingBytes: number) =>
  (config: Config): Config => ({
    ...config,
    speech: config.speech && { ...config.speech, streaming: { ...config.speech.streaming, waitingBytes } },
  });

test('prepaid: with too much unread whole audio, new speech is 503 until it is read', async (t) => {
  const { gateway, upstream, path, pay, paid } = await PAYERS.prepaid.start(t, {}, withLimit(8 * MIB));
  upstream.mode = mp3(750_000);
  const [first, second] = [await pay(), await pay()];
  const unread = await sendUnread(gateway.url, path, first);
  t.teardown(() => unread.destroy());
  await until(async () => (await paid()) === PRICE && (await waitingBytes(gateway)) === AUDIO.length);
  const refused = await gateway.call(path, second);
  t.strictSame([refused.status, refused.json.error.code], [503, 'TTS_UNAVAILABLE']);
  t.equal(upstream.requests.length, 1, 'the provider is not asked');
  unread.destroy();
  await until(async () => (await waitingBytes(gateway)) === 0);
  t.equal((await gateway.call(path, second)).status, 200);
  t.strictSame(await audit(gateway.db), []);
});

test('prepaid: with the audio buffer full, a new request is 503 before any hold', async (t) => {
  const { gateway, upstream, path, pay, paid } = await PAYERS.prepaid.start(t, {}, withLimit(PIECE.length));
  const [first, second] = [await pay(), await pay()];
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const served = gateway.call(path, first);
  await drip.opened;
  await drip.write(PIECE);
  await until(async () => (await waitingBytes(gateway)) === PIECE.length);
  const refused = await gateway.call(path, second);
  t.equal(refused.status, 503);
  t.equal(refused.json.error.code, 'TTS_UNAVAILABLE');
  t.ok(Number(refused.headers.get('retry-after')) > 0);
  t.equal(upstream.requests.length, 1);
  drip.end();
  t.equal((await served).status, 200);
  t.equal(await paid(), PRICE);
  t.strictSame(await audit(gateway.db), []);
});

const { start, skip } = PAYERS.direct;

test('direct: at twice the limit whole audio is cut, and a repetition gets all of it', { skip }, async (t) => {
  const { gateway, upstream, path, pay, paid } = await start(t, { SPEECH_TIMEOUT_MS: '110000' }, withLimit(8 * MIB));
  const calls = [await pay(), await pay()];
  const drips: ControlledStream[] = [];
  const connections: Socket[] = [];
  gateway.app.server.server.on('connection', (socket) => connections.push(socket));
  for (const call of calls) {
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const socket = await sendUnread(gateway.url, path, call);
    t.teardown(() => socket.destroy());
    await drip.opened;
    drips.push(drip);
  }
  for (const drip of drips) {
    await drip.write(AUDIO);
    drip.end();
  }
  await until(() => connections.some(({ destroyed }) => destroyed));
  await until(async () => (await waitingBytes(gateway)) === AUDIO.length);
  for (const call of calls) {
    const { status, bytes } = await gateway.call(path, call);
    t.strictSame([status, bytes.equals(AUDIO)], [200, true]);
  }
  t.equal(upstream.requests.length, 2);
  t.equal(await paid(), 2n * PRICE);
  t.strictSame(await audit(gateway.db), []);
});
