import { once } from 'node:events';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { type Test, test } from 'tap';
import { type Gateway, type LogLine, startGateway } from '../support/gateway.ts';
import { PAYERS, PRICE as PAYERS_PRICE, SPEECH } from '../support/payers.ts';
import { connectRaw, exchange, requestBytes } from '../support/raw-http.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { ControlledStream, mp3, openAiError, testUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const LOGGED = { LOG_LEVEL: 'info' };
const TEXT = 'Hello world';
const PRICE = 198;
const AUDIO = silentMp3(2000);
const HALF = AUDIO.subarray(0, AUDIO.length / 2);

async function start(t: Test) {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...LOGGED });
  return { upstream, gateway, account: await gateway.fund(500) };
}

const requestLines = ({ log }: Gateway): LogLine[] => log.filter(({ msg }) => msg === 'request');

/** The lines of the requests once there are so many. */
async function untilLogged(gateway: Gateway, count: number): Promise<LogLine[]> {
  await until(() => requestLines(gateway).length >= count);
  return requestLines(gateway);
}

/** Reads a card stream until its first audio is there. */
async function beginStream({ url }: Gateway, account: string) {
  const headers = { 'x-credit-account': account, 'content-type': 'application/json' };
  const outgoing = request(`${url}/tts`, { method: 'POST', headers });
  outgoing.on('error', () => {});
  outgoing.end(JSON.stringify({ text: TEXT }));
  const [incoming] = await once(outgoing, 'response');
  incoming.on('error', () => {});
  await once(incoming, 'data');
  return { incoming, traceId: String(incoming.headers['x-trace-id']), leave: () => outgoing.destroy() };
}

async function counted(gateway: Gateway, labels: string): Promise<number> {
  const { body } = await gateway.app.admin.inject({ url: '/metrics' });
  const name = `speechgate_http_request_duration_seconds_count{${labels}} `;
  const line = body.split('\n').find((candidate) => candidate.startsWith(name));
  return Number(line?.slice(name.length) ?? 0);
}

test('a complete stream is one log line and one count', async (t) => {
  const { gateway, upstream, account } = await start(t);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const streamed = gateway.call('/tts', {
    method: 'POST',
    json: { text: TEXT },
    headers: { 'x-credit-account': account },
  });
  await drip.opened;
  await drip.write(AUDIO);
  drip.end();
  const reply = await streamed;
  const [line, ...more] = await untilLogged(gateway, 1);
  t.strictSame(more, []);
  const { level, time, ms, ...told } = line as LogLine;
  t.ok(Number(ms) > 0);
  t.strictSame(told, {
    msg: 'request',
    traceId: reply.headers.get('x-trace-id'),
    method: 'POST',
    route: '/tts',
    status: 200,
    end: 'answered',
    bytes: AUDIO.length,
    flow: 'card',
    characters: TEXT.length,
    chargedMicroUsd: PRICE,
  });
  t.equal(await counted(gateway, 'operation="createSpeech",status="200",end="answered"'), 1);
});

/** A stream of which half has come. */
async function halfStream(t: Test) {
  const { gateway, upstream, account } = await start(t);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const begun = beginStream(gateway, account);
  await drip.opened;
  await drip.write(HALF);
  return { gateway, drip, ...(await begun) };
}

test('a stream whose caller disconnects is one log line with its charge', async (t) => {
  const { gateway, drip, leave, traceId } = await halfStream(t);
  leave();
  await drip.write(AUDIO.subarray(HALF.length));
  drip.end();
  const lines = await untilLogged(gateway, 1);
  t.equal(lines.length, 1);
  const [{ status, end, bytes, chargedMicroUsd, flow, ...line } = {} as LogLine] = lines;
  t.strictSame([status, end, flow, chargedMicroUsd], [200, 'caller_left', 'card', PRICE]);
  t.equal(line.traceId, traceId);
  t.ok(Number(bytes) > 0 && Number(bytes) <= AUDIO.length, `${bytes} bytes`);
  t.equal(await counted(gateway, 'operation="createSpeech",status="200",end="caller_left"'), 1);
});

test('a stream whose provider breaks off is one log line, charged nothing', async (t) => {
  const { gateway, drip, incoming, traceId } = await halfStream(t);
  drip.reset();
  await new Promise((resolve) => incoming.once('close', resolve));
  const [line, ...more] = await untilLogged(gateway, 1);
  t.strictSame(more, []);
  t.strictSame(
    [line?.traceId, line?.end, line?.flow, line?.chargedMicroUsd, line?.characters],
    [traceId, 'broken_off', 'card', 0, TEXT.length],
  );
  t.equal(await counted(gateway, 'operation="createSpeech",status="200",end="broken_off"'), 1);
});

test('a request whose caller disconnects before the response has no status', async (t) => {
  const { gateway, upstream, account } = await start(t);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const { socket, answers } = await connectRaw(gateway.url);
  answers.catch(() => {});
  const speech = { method: 'POST', json: { text: TEXT }, headers: { 'x-credit-account': account } };
  socket.write(requestBytes('/tts', speech) + requestBytes('/'));
  await drip.opened;
  upstream.mode = mp3();
  socket.write(requestBytes('/tts', speech));
  await upstream.waitForRequests(2);
  socket.destroy();
  await untilLogged(gateway, 2);
  // Too long to be sent at once.
  await drip.write(silentMp3(120_000));
  drip.end();
  const lines = await untilLogged(gateway, 3);
  const told = lines.map(({ route, status, end, bytes, chargedMicroUsd }) => [
    route,
    status,
    end,
    bytes,
    chargedMicroUsd,
  ]);
  t.strictSame(told, [
    ['/', null, 'caller_left', 0, undefined],
    ['/tts', null, 'caller_left', 0, PRICE],
    ['/tts', null, 'caller_left', 0, PRICE],
  ]);
  const { log } = gateway;
  t.strictSame(
    log.filter(({ level }) => level === 'error'),
    [],
  );
  t.notMatch(JSON.stringify(log), new RegExp(`${TEXT}|${account}`), 'R40: no line holds text or account');
});

test('a request without an operation is one log line', async (t) => {
  const { gateway, account } = await start(t);
  await gateway.call('/nowhere');
  await gateway.call('/%zz');
  await gateway.call(`/credits/${account}`, { method: 'HEAD' });
  const lines = await untilLogged(gateway, 3);
  t.strictSame(
    lines.map(({ route, status, end }) => [route, status, end]),
    [
      [null, 404, 'answered'],
      [null, 400, 'answered'],
      ['/credits/:accountId', 200, 'answered'],
    ],
  );
  t.equal(lines[2]?.bytes, 0);
  const { socket, answers } = await connectRaw(gateway.url);
  answers.catch(() => {});
  socket.write('POST /tts HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nhalf');
  socket.end();
  const cut = (await untilLogged(gateway, 4))[3];
  t.strictSame([cut?.route, cut?.status, cut?.end], ['/tts', 400, 'answered']);
});

const EXPECTING = 'host: a\r\nexpect: more\r\nconnection: close\r\n\r\n';
const CHUNKED = 'host: a\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n';
const REFUSED_EARLY: Readonly<
  Record<string, [bytes: string, route: string | null, operation: string, status: number]>
> = {
  'invalid HTTP': ['nonsense\r\n\r\n', null, 'none', 400],
  'a CONNECT request': ['CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n', null, 'none', 405],
  'an unknown expectation': [`GET / HTTP/1.1\r\n${EXPECTING}`, '/', 'getHealth', 417],
  'an invalid chunk': [`POST /tts HTTP/1.1\r\n${CHUNKED}nonsense\r\n`, '/tts', 'createSpeech', 400],
};

test('a request refused before the framework is one log line and one count', async (t) => {
  const { gateway } = await start(t);
  for (const [index, [name, [bytes, route, operation, status]]] of Object.entries(REFUSED_EARLY).entries()) {
    const [answer] = await exchange(gateway.url, bytes);
    const line = (await untilLogged(gateway, index + 1))[index];
    const traceId = answer?.headers.get('x-trace-id');
    t.strictSame([line?.traceId, line?.route, line?.status, line?.end], [traceId, route, status, 'answered'], name);
    t.equal(line?.bytes, answer?.bytes.length);
    t.equal(await counted(gateway, `operation="${operation}",status="${status}",end="answered"`), 1, name);
  }
  t.equal(requestLines(gateway).length, Object.keys(REFUSED_EARLY).length);
});

const { card, prepaid, direct } = PAYERS;
for (const [flow, { start, skip }] of Object.entries({ card, prepaid, direct })) {
  test(`${flow}: the log line states the charge, which is 0 after a failure`, { skip }, async (t) => {
    const { gateway, upstream, path, pay } = await start(t, LOGGED);
    const { text } = SPEECH.json as { text: string };
    const before = requestLines(gateway).length;
    const paying = () =>
      requestLines(gateway)
        .slice(before)
        .filter((line) => line.flow !== undefined);
    await gateway.call(path, await pay());
    await until(() => paying().length >= 1);
    upstream.mode = openAiError(500);
    await gateway.call(path, await pay());
    await until(() => paying().length >= 2);
    t.strictSame(
      paying().map(({ status, characters, chargedMicroUsd }) => [status, characters, chargedMicroUsd]),
      [
        [200, text.length, Number(PAYERS_PRICE)],
        [502, text.length, 0],
      ],
    );
  });
}

test('a caller that disconnects within its body is not logged as a failure', async (t) => {
  const gateway = await startGateway(t, LOGGED);
  for (const path of ['/tts', '/x402/tts/quote', '/top-up']) {
    const before = requestLines(gateway).length;
    const { socket, answers } = await connectRaw(gateway.url);
    answers.catch(() => {});
    const head = `POST ${path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 99\r\n`;
    socket.write(`${head.replace('json', path === '/top-up' ? 'x-www-form-urlencoded' : 'json')}\r\n{`);
    socket.end();
    await untilLogged(gateway, before + 1);
  }
  t.strictSame(
    gateway.log.filter(({ msg }) => msg.startsWith('a request failed')),
    [],
  );
});

test('R55: a request after a stop has ended its connection starts no work', async (t) => {
  const { gateway, upstream, account } = await start(t);
  const [ended, running] = [new ControlledStream(), new ControlledStream()];
  const speech = requestBytes('/tts', {
    method: 'POST',
    headers: { 'x-credit-account': account },
    json: { text: TEXT },
  });
  upstream.mode = ended.mode;
  const socket = connect({ port: Number(new URL(gateway.url).port), host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => {});
  t.teardown(() => socket.destroy());
  socket.write(speech);
  await ended.opened;
  await ended.write(HALF);
  await once(socket, 'data');
  // Keeps the service running while the first connection ends.
  upstream.mode = running.mode;
  const kept = gateway.call('/tts', { method: 'POST', headers: { 'x-credit-account': account }, json: { text: TEXT } });
  await running.opened;
  await running.write(HALF);
  const closed = gateway.app.close();
  ended.end();
  socket.resume();
  await once(socket, 'end');
  socket.write(speech);
  await until(() => requestLines(gateway).length > 1 || upstream.requests.length > 2);
  t.equal(upstream.requests.length, 2);
  running.end();
  await kept;
  await closed;
});

const REQUEST = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';

test('R55: a payment does not shorten the time that a long synthesis may take', async (t) => {
  const { gateway, upstream, path, pay, ask } = await PAYERS.prepaid.start(t, { SPEECH_TIMEOUT_MS: '600000' });
  const call = await pay();
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const connected = once(gateway.app.server.server, 'connection');
  const reply = ask(call);
  const [socket] = (await connected) as [Socket];
  await drip.opened;
  t.ok(Number(socket.timeout) > 600_000, `${path} is cut after ${socket.timeout} ms`);
  await drip.write(AUDIO);
  await drip.end();
  t.equal((await reply).status, 200);
});

test('MAX_CONNECTIONS: an extra connection is closed until another one ends', async (t) => {
  const { url } = await startGateway(t, { MAX_CONNECTIONS: '2' });
  const open = () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
    return socket;
  };
  const answers = async (socket: Socket): Promise<boolean> => {
    if (socket.destroyed) return false;
    socket.write(REQUEST);
    return Promise.race([once(socket, 'data').then(() => true), once(socket, 'close').then(() => false)]);
  };
  const [first, second, third] = [open(), open(), open()];
  t.equal(await answers(first), true);
  t.equal(await answers(second), true);
  t.equal(await answers(third), false);
  first.destroy();
  await until(() => answers(open()));
});
