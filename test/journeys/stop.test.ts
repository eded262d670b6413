import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { startGateway } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { ControlledStream, silentMp3, testUpstream } from '../support/stub-upstream.ts';

const HALF_HEADER = 'GET / HTTP/1.1\r\nhos';
const HALF_BODY =
  'POST /tts HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"text":';
const IDLE: [string, string][] = [
  ['that has sent nothing', ''],
  ['with half a header', HALF_HEADER],
  ['with half a body', HALF_BODY],
];

async function start(t: Test) {
  const { url: databaseUrl } = await testDatabase(t);
  const upstream = await testUpstream(t);
  const { db, fund } = await startGateway(t, {}, { databaseUrl });
  const { url, child } = await startGatewayProcess(t, {
    DATABASE_URL: databaseUrl,
    SPEECH_BASE_URL: upstream.url,
    SPEECH_TIMEOUT_MS: '10000',
    STRIPE_SECRET_KEY: 'sk_test_gateway',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    RECONCILE_INTERVAL_MS: '86400000',
    LOG_LEVEL: 'warn',
  });
  const open = async (bytes: string): Promise<Socket> => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
    await once(socket, 'connect');
    if (bytes) await new Promise((sent) => socket.write(bytes, sent));
    return socket;
  };
  const account = await fund(500);
  return { upstream, db, child, open, account };
}

/** Everything that arrives until the connection ends. */
async function read(socket: Socket): Promise<string> {
  let text = '';
  socket.setEncoding('latin1').on('data', (piece) => (text += piece));
  await once(socket, 'close');
  return text;
}

/** An answer to a whole request: by then the process has read what other sockets had sent before. */
async function roundTrip(open: (bytes: string) => Promise<Socket>): Promise<Socket> {
  const socket = await open('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
  await once(socket, 'data');
  return socket;
}

for (const [name, bytes] of IDLE) {
  test(`SIGTERM exits with 0 despite a connection ${name}`, async (t) => {
    const { child, open } = await start(t);
    const closed = read(await open(bytes));
    const kept = read(await roundTrip(open));
    assert.equal(await child.stop(), 0);
    assert.equal(await closed, '');
    await kept;
    assert.doesNotMatch(child.output(), /killed/);
  });
}

test('SIGTERM waits for a running synthesis despite idle connections', async (t) => {
  const { upstream, db, child, open, account } = await start(t);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  for (const [, bytes] of IDLE) await open(bytes);
  const speaking = read(await open(`GET /tts?text=hello HTTP/1.1\r\nhost: a\r\nx-credit-account: ${account}\r\n\r\n`));
  await drip.opened;
  const late = await open(HALF_BODY.slice(0, -5));
  const idle = read(await roundTrip(open));
  const stopped = child.stop();
  await idle;
  const answer = read(late);
  late.write(`${HALF_BODY.slice(-5)}${'7'.padEnd(92)}}`);
  assert.match(await answer, /^HTTP\/1\.1 400 [\s\S]*connection: close/i, 'a request that arrives in time is answered');
  await drip.write(silentMp3(500));
  drip.end();
  const text = await speaking;
  assert.match(text, /^HTTP\/1\.1 200 OK[\s\S]*connection: close/i);
  assert.ok(text.length > silentMp3(500).length);
  assert.equal(await stopped, 0);
  assert.deepEqual(await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute(), []);
  assert.deepEqual(await audit(db), []);
});

test('SIGTERM does not wait for a client that does not read its response', async (t) => {
  const { child, open } = await start(t);
  const socket = await open('');
  socket.pause();
  // 16 answers of the contract: more than the kernel takes.
  socket.write('GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(1000));
  await roundTrip(open);
  assert.equal(await child.stop(), 0);
});
