import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import { test } from 'tap';
import { createLinkSigner } from '../../src/audio/link-token.ts';
import { LINGER_MS } from '../../src/http/linger.ts';
import { audit } from '../../src/ledger/audit.ts';
import type { Call, Gateway } from '../support/gateway.ts';
import {
  assertOffered,
  CHARGED,
  concluded,
  detailsOf,
  endedLongerAgo,
  FUNDS,
  follow,
  GET,
  loseAnswer,
  PENDING,
  PRICE,
  SECRET,
  sendUnread,
  startWithFunds,
} from '../support/lost-answer.ts';
import { HELLO, type PrepaidGateway, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { connectRaw, requestBytes } from '../support/raw-http.ts';
import { body, Drip, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

/** More than kernels take of an answer that nobody reads. */
const LONG = silentMp3(600_000);

const keptOf = ({ db }: Gateway) => db.selectFrom('lost_answer').selectAll().execute();

const CUTS: [string, (gateway: PrepaidGateway, call: Call, path: string) => Promise<void>][] = [
  [
    'during the synthesis',
    async (gateway, call, path) => {
      const drip = new Drip();
      gateway.upstream.mode = drip.mode;
      const socket = await sendUnread(gateway.url, path, call);
      await drip.opened;
      socket.destroy();
      await until(async () => (await connectionsOf(gateway)) === 0);
      await drip.write(LONG);
      drip.end();
    },
  ],
  [
    'after the headers',
    async (gateway, call, path) => {
      const socket = await sendUnread(gateway.url, path, call);
      await once(socket, 'readable');
      socket.read(20);
      socket.destroy();
    },
  ],
  [
    'in the body',
    async (gateway, call, path) => {
      const socket = await sendUnread(gateway.url, path, call);
      await once(socket, 'readable');
      for (let read = 0; read < 1_000_000; ) {
        const bytes = socket.read();
        if (bytes) read += bytes.length;
        else await once(socket, 'readable');
      }
      socket.resetAndDestroy();
    },
  ],
];

const connectionsOf = ({ app }: Gateway) =>
  new Promise<number>((resolve, reject) =>
    app.server.server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
  );

for (const [when, cut] of CUTS) {
  test(`R60: a connection that is cut ${when}: the request is charged once, and its audio is offered`, async (t) => {
    const { gateway, sign, balance } = await startWithFunds(t);
    gateway.upstream.mode = body(LONG);
    for (const [path, call] of [
      [TTS, await sign(TTS, HELLO)],
      [GET, await sign(GET)],
    ] as const) {
      const before = await balance();
      gateway.upstream.mode = body(LONG);
      await cut(gateway, call, path);
      await assertOffered(gateway, call, LONG, path);
      assert.ok((await balance()) < before);
    }
    assert.equal(gateway.upstream.requests.length, 2);
    assert.deepEqual(await audit(gateway.db), []);
  });
}

test('R60: the connection ends with an error after the last byte was handed over', async (t) => {
  const { gateway, sign, balance } = await startWithFunds(t);
  const call = await sign(TTS, HELLO);
  await loseAnswer(gateway.url, TTS, call);
  await until(async () => (await keptOf(gateway)).some(({ stored_at: at }) => at !== null));
  await assertOffered(gateway, call, silentMp3(1000));
  assert.equal(await balance(), FUNDS - BigInt(PRICE));
  assert.equal(gateway.upstream.requests.length, 1);
});

for (const connection of ['keep-alive', 'close']) {
  test(`R60: the caller has closed the connection, unseen, when its answer is handed over (${connection})`, async (t) => {
    const { gateway, sign } = await startWithFunds(t);
    const signed = await sign(TTS, HELLO);
    const call = { ...signed, headers: { ...signed.headers, connection } };
    const socket = await sendUnread(gateway.url, TTS, call);
    gateway.app.server.server.prependOnceListener('request', (_request, response: ServerResponse) => {
      const { end } = response;
      response.end = ((...answer: Parameters<typeof end>) => {
        socket.destroy();
        return end.apply(response, answer);
      }) as typeof end;
    });
    await until(() => gateway.upstream.requests.length > 0);
    await assertOffered(gateway, signed, silentMp3(1000));
  });
}

for (const [moment, isLost] of [
  ['in the turn', true],
  ['a turn after that', false],
] as const) {
  test(`R60: an end that is read ${moment} in which the answer was handed over, and no error: lost ${isLost}`, async (t) => {
    const { gateway, sign } = await startWithFunds(t);
    const call = await sign(TTS, HELLO);
    gateway.app.server.server.prependOnceListener(
      'request',
      ({ socket }: IncomingMessage, response: ServerResponse) => {
        const end = () => socket.emit('end');
        response.once('close', () => (isLost ? process.nextTick(end) : setImmediate(() => setImmediate(end))));
      },
    );
    await once((await sendUnread(gateway.url, TTS, call)).resume(), 'close');
    if (isLost) await assertOffered(gateway, call, silentMp3(1000));
    else assert.deepEqual(detailsOf(await concluded(gateway, call)), CHARGED);
  });
}

test('R60: a caller who ends his side before the last byte was handed over is offered the audio', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  gateway.upstream.mode = body(LONG);
  const call = await sign(TTS, HELLO);
  const accepted = once(gateway.app.server.server, 'connection');
  const socket = await sendUnread(gateway.url, TTS, call);
  const [served] = (await accepted) as [Socket];
  await once(socket, 'readable');
  socket.end();
  await until(() => served.readableEnded);
  socket.resume();
  await once(socket, 'close');
  await assertOffered(gateway, call, LONG);
});

test('R60: while the connection of an answer is silent, it is open whether that has arrived', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const call = await sign(TTS, HELLO);
  const silent = await sendUnread(gateway.url, TTS, call);
  await once(silent, 'readable');
  assert.deepEqual(detailsOf(await gateway.call(TTS, call)), PENDING);
  silent.resetAndDestroy();
  await assertOffered(gateway, call, silentMp3(1000));
});

test('R60: an answer that closes its connection is followed as long as any other', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const call = await sign(TTS, HELLO);
  const accepted = once(gateway.app.server.server, 'connection');
  const silent = await sendUnread(gateway.url, TTS, { ...call, headers: { ...call.headers, connection: 'close' } });
  const [served] = (await accepted) as [Socket];
  await once(served, 'finish');
  await sleep(LINGER_MS + 500);
  assert.deepEqual(detailsOf(await gateway.call(TTS, call)), PENDING);
  silent.resetAndDestroy();
  await assertOffered(gateway, call, silentMp3(1000));
});

test('R60: nothing is written for an answer that has arrived: by the next request, or by a close', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const [first, second] = [await sign(TTS, HELLO), await sign(TTS, HELLO)];
  const { socket, answers } = await connectRaw(gateway.url);
  for (const call of [first, second]) {
    socket.write(requestBytes(TTS, call));
    await until(() => gateway.upstream.requests.length > 0);
  }
  await once(socket, 'data');
  socket.write(requestBytes('/', { headers: { connection: 'close' } }));
  assert.deepEqual(
    (await answers).map(({ status }) => status),
    [200, 200, 200],
  );
  for (const call of [first, second]) {
    const again = await gateway.call(TTS, call);
    assert.deepEqual(detailsOf(again), CHARGED);
    assert.equal(again.headers.get('x-x402-charged'), '0');
  }
  assert.deepEqual(await keptOf(gateway), []);
});

test('R60: after 10 minutes audio and row are gone, and the request is known still', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const call = await sign(TTS, HELLO);
  await loseAnswer(gateway.url, TTS, call);
  const link = await assertOffered(gateway, call, silentMp3(1000));
  await sql`update lost_answer set expires_at = expires_at - interval '10 minutes'`.execute(gateway.db);
  assert.equal((await follow(gateway.url, link)).status, 404);
  await gateway.app.reconcilers.turn();
  assert.deepEqual(await keptOf(gateway), []);
  assert.equal((await follow(gateway.url, link)).status, 404);
  await until(async () => detailsOf(await gateway.call(TTS, call)).audio === undefined);
  assert.deepEqual(detailsOf(await gateway.call(TTS, call)), CHARGED);
});

test('R55: a store that fails leaves the request charged, and tells operators', async (t) => {
  const audioStore = await mkdtemp(join(tmpdir(), 'speechgate-lost-'));
  t.teardown(() => rm(audioStore, { recursive: true, force: true }));
  await writeFile(join(audioStore, 'file'), '');
  const env = { AUDIO_STORE: `file:${join(audioStore, 'file')}`, LOG_LEVEL: 'error' };
  const { gateway, sign, balance } = await startWithFunds(t, env);
  const call = await sign(TTS, HELLO);
  await loseAnswer(gateway.url, TTS, call);
  const again = await concluded(gateway, call);
  assert.deepEqual(detailsOf(again), CHARGED);
  assert.match(again.json.error.message, /arrived, or can not be had any more/);
  assert.equal(await balance(), FUNDS - BigInt(PRICE));
  await until(() => gateway.log.some(({ msg }) => /did not arrive can not be kept/.test(msg)));
  assert.match(await gateway.app.metrics.scrape(), /^speechgate_lost_answers_total\{outcome="not_kept"\} 1$/m);
  assert.deepEqual(await audit(gateway.db), []);
  await endedLongerAgo(gateway, 41);
  const beside = await startPrepaidGateway(t, env, { databaseUrl: gateway.databaseUrl });
  assert.deepEqual(detailsOf(await concluded(beside, call)), CHARGED, 'another process does not wait for it either');
});

test('R60: links open the audio that they were signed for, and nothing else', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const call = await sign(TTS, HELLO);
  await loseAnswer(gateway.url, TTS, call);
  const link = new URL(await assertOffered(gateway, call, silentMp3(1000)));
  const [, id = ''] = /audio\/(.+)$/.exec(link.pathname) ?? [];
  const later = new Date(Date.now() + 60_000);
  const status = async (sig: string | undefined, path = link.pathname) =>
    (await gateway.call(sig === undefined ? path : `${path}?sig=${sig}`)).status;
  const ofJob = await createLinkSigner('job-audio', [SECRET]).sign(id, later);
  const own = createLinkSigner('prepaid-audio', [SECRET]);
  const forged = await createLinkSigner('prepaid-audio', ['another secret of 32 bytes or more']).sign(id, later);
  const ofAnother = await own.sign('7c9e6679-7425-40de-944b-e07fc1f90ae7', later);
  const past = await own.sign(id, new Date(Date.now() - 1000));
  for (const sig of [undefined, '', ofJob, forged, ofAnother, past]) assert.equal(await status(sig), 401, String(sig));
  const good = await own.sign(id, later);
  assert.equal(await status(good), 200);
  assert.equal(await status(good, `/tts/jobs/${id}/audio`), 401, 'a job is opened by a sig of its own');
  assert.equal(await status(undefined, '/x402/tts/audio/none'), 404);
  const part = await follow(gateway.url, link.href, { headers: { range: 'bytes=0-383' } });
  assert.deepEqual([part.status, part.bytes.length], [206, 384]);
  const none = await follow(gateway.url, link.href, { headers: { range: 'bytes=99999999-' } });
  assert.equal(none.status, 416);
  assert.equal((await follow(gateway.url, link.href, { method: 'HEAD' })).bytes.length, 0);
});

test('R60: where links are not signed, the id opens the audio, and nobody can guess it', async (t) => {
  const { gateway, sign } = await startWithFunds(t, { JOB_SIGNING_SECRET: '' });
  const call = await sign(TTS, HELLO);
  await loseAnswer(gateway.url, TTS, call);
  const link = await assertOffered(gateway, call, silentMp3(1000));
  assert.match(link, /\/x402\/tts\/audio\/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/);
  assert.equal((await gateway.call('/x402/tts/audio/7c9e6679-7425-40de-944b-e07fc1f90ae7')).status, 404);
});
