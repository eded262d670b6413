import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
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
type Behaviour = (socket: Socket, request: string) => unknown;

const head = (length: number, status = '200 OK') => `HTTP/1.1 ${status}\r\ncontent-length: ${length}\r\n\r\n`;

/** A server that behaves as it is told, and a pool of one connection to it. */
async function setUp(t: Test, behaviour: Behaviour) {
  const connections: Socket[] = [];
  const requests: string[] = [];
  const server = createServer((socket) => {
    connections.push(socket);
    socket.on('data', (chunk) => {
      requests.push(chunk.toString());
      behaviour(socket, chunk.toString());
    });
  });
  const options = { connections: 1, headersTimeout: 0, bodyTimeout: 0, maxResponseSize: MAX_BYTES };
  const pool = new Pool(await serve(t, server), options);
  t.teardown(() => pool.destroy());
  const timersBefore = timers();
  return {
    ...{ requests, connections },
    post: (timeoutMs = PATIENT_MS) => postJson(pool, REQUEST, timeoutMs),
    /** Whether that connection, by its number, is closed within moments. */
    untilClosed: (index: number) => until(() => connections[index]?.closed === true, 1_000),
    /** Once the pool is closed, no exchange has left a timer or a connection. */
    assertOver: async () => {
      await pool.close();
      await until(() => connections.every(({ closed }) => closed) && timers() <= timersBefore, 5_000);
    },
  };
}

const timers = () => process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;

test('a response is read completely, whatever its status and framing', async (t) => {
  const CASES: readonly [string, Behaviour, number, string][] = [
    ['at once', (socket) => socket.write(`${head(4)}text`), 200, 'text'],
    ['refused', (socket) => socket.write(`${head(4, '500 No')}text`), 500, 'text'],
    ['empty', (socket) => socket.write(head(0)), 200, ''],
    [
      'in parts, cut within a character',
      async (socket) => {
        const bytes = Buffer.from(`${head(6)}a\u20acbc`);
        for (const byte of bytes) {
          socket.write(Buffer.from([byte]));
          await sleep(1);
        }
      },
      200,
      'a\u20acbc',
    ],
    [
      'in chunks',
      (socket) => socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nte\r\n2\r\nxt\r\n0\r\n\r\n'),
      200,
      'text',
    ],
  ];
  for (const [title, behaviour, status, text] of CASES) {
    const { post, requests, assertOver } = await setUp(t, behaviour);
    t.strictSame(await post(), { status, text }, title);
    t.match(
      requests.join(''),
      /^POST \/verify HTTP\/1.1\r\n[\s\S]*content-type: application\/json\r\n[\s\S]*\r\n\r\n{"a":1}$/,
    );
    await assertOver();
  }
});

test('a connection serves successive exchanges', async (t) => {
  const { post, connections, assertOver } = await setUp(t, (socket) => socket.write(`${head(4)}text`));
  for (let count = 0; count < 5; count++) await post();
  await Promise.all([post(), post()]);
  t.equal(connections.length, 1);
  await assertOver();
});

const LATE: readonly [string, Behaviour][] = [
  ['before the head', () => {}],
  ['within the head', (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-le')],
  ['within the body', (socket) => socket.write(`${head(10)}half`)],
];

for (const [when, behaviour] of LATE) {
  test(`a response that stops ${when} times out, and its connection is closed`, async (t) => {
    const { post, untilClosed, assertOver } = await setUp(t, behaviour);
    const before = performance.now();
    await assert.rejects(post(TIMEOUT_MS), AnswerTimeout);
    const waited = performance.now() - before;
    t.ok(waited > TIMEOUT_MS - 5, `${waited} ms`);
    await untilClosed(0);
    await assertOver();
  });
}

test('an exchange without a connection in time is never sent', async (t) => {
  const { post, requests, assertOver } = await setUp(t, async (socket) => {
    await sleep(3 * TIMEOUT_MS);
    socket.write(`${head(4)}text`);
  });
  const first = post();
  await until(() => requests.length === 1);
  await assert.rejects(post(TIMEOUT_MS), AnswerTimeout);
  t.equal((await first).text, 'text');
  t.equal((await post()).text, 'text');
  t.equal(requests.length, 2);
  await assertOver();
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

for (const [what, behaviour] of BROKEN) {
  test(`a server that ${what} fails at once, and the next call reconnects`, async (t) => {
    let isBroken = true;
    const { post, assertOver } = await setUp(t, (socket, request) =>
      isBroken ? behaviour(socket, request) : socket.write(`${head(4)}text`),
    );
    const error: Error = await post().then(
      () => assert.fail('there was an answer'),
      (reason) => reason,
    );
    t.ok(!(error instanceof AnswerTimeout), String(error));
    isBroken = false;
    t.strictSame(await post(), { status: 200, text: 'text' });
    await assertOver();
  });
}

test('an unreachable server is an error', async (t) => {
  const { port } = await closedPort();
  const pool = new Pool(`http://127.0.0.1:${port}`);
  t.teardown(() => pool.destroy());
  const before = timers();
  await t.rejects(postJson(pool, REQUEST, PATIENT_MS), { code: 'ECONNREFUSED' });
  t.ok(timers() <= before, 'no timer is left');
});

async function closedPort(): Promise<AddressInfo> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return address;
}
