import assert from 'node:assert/strict';
import { createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Test, test } from 'tap';
import { Pool } from 'undici';
import { AnswerTimeout, postJson } from '../../../src/payments/x402/json-exchange.ts';
import { serve } from '../../support/listening.ts';
import { until } from '../../support/until.ts';

const TIMEOUT_MS = 300;
const PATIENT_MS = 10_000;
const MAX_BYTES = 100;
const REQUEST = { path: '/verify', headers: { 'content-type': 'application/json' }, body: '{"a":1}' };

/** What a server writes when it has been asked; undefined where it writes nothing more. */
type Behaviour = (socket: Socket) => unknown;

const head = (length: number, status = '200 OK') => `HTTP/1.1 ${status}\r\ncontent-length: ${length}\r\n\r\n`;
const text: Behaviour = (socket) => socket.write(`${head(4)}text`);

/** A server that behaves as it is told now, and a pool of one connection to it. */
async function setUp(t: Test, server: { now: Behaviour }) {
  const connections: Socket[] = [];
  let requests = 0;
  const listener = createServer((socket) => {
    connections.push(socket);
    socket.on('data', () => {
      requests += 1;
      server.now(socket);
    });
  });
  const options = { connections: 1, headersTimeout: 0, bodyTimeout: 0, maxResponseSize: MAX_BYTES };
  const pool = new Pool(await serve(t, listener), options);
  t.teardown(() => pool.destroy());
  return {
    requests: () => requests,
    post: (timeoutMs = PATIENT_MS) => postJson(pool, REQUEST, timeoutMs),
    untilClosed: () => until(() => connections.every(({ closed }) => closed), 5_000),
  };
}

test('a response is read completely, whatever its status and framing', async (t) => {
  const inParts: Behaviour = async (socket) => {
    for (const byte of Buffer.from(`${head(6, '500 No')}a\u20acbc`)) {
      socket.write(Buffer.from([byte]));
      await sleep(1);
    }
  };
  const inChunks: Behaviour = (socket) =>
    socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nte\r\n2\r\nxt\r\n0\r\n\r\n');
  const server = { now: text };
  const { post } = await setUp(t, server);
  t.strictSame(await post(), { status: 200, text: 'text' });
  server.now = inParts;
  t.strictSame(await post(), { status: 500, text: 'a\u20acbc' }, 'cut within a character');
  server.now = inChunks;
  t.strictSame(await post(), { status: 200, text: 'text' });
});

const LATE: readonly [string, Behaviour][] = [
  ['before the head', () => {}],
  ['within the head', (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-le')],
  ['within the body', (socket) => socket.write(`${head(10)}half`)],
];

test('a response that stops times out, and its connection is closed', async (t) => {
  for (const [when, now] of LATE) {
    const { post, untilClosed } = await setUp(t, { now });
    await assert.rejects(post(TIMEOUT_MS), AnswerTimeout, when);
    await untilClosed();
  }
});

test('an exchange without a connection in time is never sent', async (t) => {
  const late: Behaviour = async (socket) => {
    await sleep(3 * TIMEOUT_MS);
    text(socket);
  };
  const { post, requests } = await setUp(t, { now: late });
  const first = post();
  await until(() => requests() === 1);
  await assert.rejects(post(TIMEOUT_MS), AnswerTimeout);
  t.equal((await first).text, 'text');
  t.equal((await post()).text, 'text');
  t.equal(requests(), 2);
});

const BROKEN: readonly [string, Behaviour][] = [
  ['resets before the head', (socket) => socket.resetAndDestroy()],
  ['closes before the head', (socket) => socket.end()],
  ['resets within the body', (socket) => socket.write(`${head(10)}half`, () => socket.resetAndDestroy())],
  ['closes within the body', (socket) => socket.end(`${head(10)}half`)],
  ['sends invalid HTTP', (socket) => socket.write('hello\r\n\r\n')],
  ['announces a giant body', (socket) => socket.write(`${head(MAX_BYTES + 1)}${'a'.repeat(MAX_BYTES + 1)}`)],
  [
    'sends a giant body',
    (socket) =>
      socket.write(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${`10\r\n${'a'.repeat(16)}\r\n`.repeat(10)}`),
  ],
];

test('a broken response fails at once, and the next call reconnects', async (t) => {
  const server = { now: text };
  const { post } = await setUp(t, server);
  for (const [what, behaviour] of BROKEN) {
    server.now = behaviour;
    await assert.rejects(post(), (error) => !(error instanceof AnswerTimeout), what);
    server.now = text;
    t.strictSame(await post(), { status: 200, text: 'text' }, what);
  }
});
