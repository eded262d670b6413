import type { Socket } from 'node:net';
import { test } from 'tap';
import type { Config } from '../../src/config/config.ts';
import { audit } from '../../src/ledger/audit.ts';
import { sendUnread } from '../support/lost-answer.ts';
import { PAYERS, PRICE } from '../support/payers.ts';
import { ControlledStream, mp3, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { waitingBytes } from '../support/waiting-bytes.ts';

const MIB = 1024 * 1024;
/** 12 MB, of which the operating system's buffers take less than a half. */
const AUDIO = silentMp3(750_000);

const withLimit =
  (waitingBytes: number) =>
  (config: Config): Config => ({
    ...config,
    speech: config.speech && { ...config.speech, streaming: { ...config.speech.streaming, waitingBytes } },
  });

for (const name of ['prepaid', 'direct'] as const) {
  const { start, skip } = PAYERS[name];

  test(`${name}: with too much unread whole audio, new speech is 503 until it is read`, { skip }, async (t) => {
    const { gateway, upstream, path, pay, paid } = await start(t, {}, withLimit(8 * MIB));
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
}

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
