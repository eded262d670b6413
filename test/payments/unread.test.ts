import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { mp3 } from '../support/stub-upstream.ts';
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
  const { host, hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname);
  t.teardown(() => socket.destroy());
  socket.on('error', () => {}).pause();
  socket.write(`GET /tts?text=Hello+world HTTP/1.1\r\nhost: ${host}\r\nx-credit-account: ${account}\r\n\r\n`);
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
