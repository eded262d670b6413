import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testCheckout } from '../support/checkout.ts';
import { send } from '../support/gateway.ts';
import { startSeveral } from '../support/several-processes.ts';
import { ControlledStream, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const SPEECH = '/tts?text=Hello+world';
const HALF_BODY =
  'POST /tts HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"text":';
const IDLE: Readonly<Record<string, string>> = {
  'that has sent nothing': '',
  'with half a header': 'GET / HTTP/1.1\r\nhos',
  'with half a body': HALF_BODY,
};

/** Everything that arrives until the connection ends. */
async function read(socket: Socket): Promise<string> {
  let text = '';
  socket.setEncoding('latin1').on('data', (piece) => (text += piece));
  await once(socket, 'close');
  return text;
}

test('npm start serves paid speech, and SIGTERM leaves no hold open', async (t) => {
  const checkout = await testCheckout(t);
  const alone = await startSeveral(t, { WEB_CONCURRENCY: '1', SPEECH_API_KEY: 'upstream-key', ...checkout.env });
  const { url, port, child, upstream, gateway } = alone;
  const { db } = gateway;
  const open = async (bytes: string): Promise<Socket> => {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
    await once(socket, 'connect');
    if (bytes) await new Promise((sent) => socket.write(bytes, sent));
    return socket;
  };
  /** An answer to a whole request: by then the process has read what other sockets had sent before. */
  const roundTrip = async (): Promise<Socket> => {
    const socket = await open('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    await once(socket, 'data');
    return socket;
  };
  let account = '';
  const speak = () => open(`GET ${SPEECH} HTTP/1.1\r\nhost: a\r\nx-credit-account: ${account}\r\n\r\n`);

  await t.test('credit is bought, and speech is paid from it', async (t) => {
    const opened = await send(url, '/top-up', { method: 'POST' });
    t.equal(opened.status, 303);
    const back = new URL(await checkout.pay(opened.headers.get('location') ?? ''));
    const page = await send(url, `${back.pathname}${back.search}`);
    account = /<code>([0-9a-f-]{36})<\/code>/.exec(page.text)?.[1] ?? '';
    t.equal((await send(url, SPEECH, { headers: { 'x-credit-account': account } })).status, 200);
    t.equal(upstream.requests[0]?.headers.authorization, 'Bearer upstream-key');
  });

  await t.test('the single process has its own admin listener', async (t) => {
    const ready = (await (await fetch(`${alone.adminUrl}/readyz`)).json()) as object;
    t.strictSame(ready, { status: 'ok', checks: { database: 'ok', schema: 'ok' } });
    await until(async () => (await alone.metric('speechgate_holds_total{flow="card",event="captured"}')) === 1);
    t.strictSame(alone.pids(), [undefined], 'lines of the log name no process');
  });

  await t.test('SIGTERM finishes running requests, whatever other connections do', async (t) => {
    const idle = await Promise.all(
      Object.entries(IDLE).map(async ([name, bytes]) => [name, read(await open(bytes))] as const),
    );
    const unread = await open('');
    unread.pause();
    // 16 answers of the contract: more than the kernel takes.
    unread.write('GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(1000));
    const [drip, abandoned] = [new ControlledStream(), new ControlledStream()];
    upstream.mode = drip.mode;
    const running = read(await speak());
    await drip.opened;
    upstream.mode = abandoned.mode;
    const left = await speak();
    await abandoned.opened;
    const late = await open(HALF_BODY.slice(0, -5));
    const kept = read(await roundTrip());
    left.destroy();
    const stopped = child.stop('SIGTERM');
    await kept;
    abandoned.end();
    const answer = read(late);
    late.write(`${HALF_BODY.slice(-5)}${'7'.padEnd(92)}}`);
    t.match(await answer, /^HTTP\/1\.1 400 [\s\S]*connection: close/i, 'a request that arrives in time is answered');
    await drip.write(silentMp3(500));
    drip.end();
    const text = await running;
    t.match(text, /^HTTP\/1\.1 200 OK[\s\S]*connection: close/i);
    t.ok(text.length > silentMp3(500).length, 'the audio is whole');
    t.equal(await stopped, 0);
    for (const [name, closed] of idle) t.equal(await closed, '', name);
    t.notMatch(child.output(), /killed/);
    await t.rejects(send(url, '/'), /ECONNREFUSED/);
    t.strictSame(await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute(), []);
    t.equal(await gateway.balance(account), 5_000_000n - 2n * 198n, 'the request of the client that left is free');
    t.strictSame(await audit(db), []);
    t.notMatch(child.output(), new RegExp(account), 'R40: no account id reaches the log');
    t.notMatch(child.output(), /Hello/, 'R40: no text reaches the log');
  });
});
