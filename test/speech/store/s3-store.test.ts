import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { createServer as createHttpServer, type RequestListener, type ServerResponse } from 'node:http';
import { connect, createServer, type Server } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { HeadObjectCommand } from '@aws-sdk/client-s3';
import { before, type Test, t, test } from 'tap';
import { openAudioStore } from '../../../src/speech/store/open-store.ts';
import { S3AudioStore, type S3Limits, type S3Options } from '../../../src/speech/store/s3-store.ts';
import { serve } from '../../support/listening.ts';
import { S3_CREDENTIALS, type S3Server, startS3Server } from '../../support/s3-server.ts';
import { isStoreError } from '../../support/store-error.ts';

const SHORT_LIMITS: S3Limits = {
  connectMs: 1000,
  put: { attemptMs: 300, totalMs: 600 },
  other: { attemptMs: 300, totalMs: 600 },
  stallMs: 300,
};
const ENVIRONMENT = [
  'AWS_ENDPOINT_URL',
  'AWS_ENDPOINT_URL_S3',
  'AWS_REGION',
  'AWS_CONFIG_FILE',
  ...Object.keys(S3_CREDENTIALS),
];

let server: S3Server;
const outside = Object.fromEntries(ENVIRONMENT.map((name) => [name, process.env[name]]));

before(async () => {
  for (const name of ENVIRONMENT) delete process.env[name];
  Object.assign(process.env, S3_CREDENTIALS, { AWS_CONFIG_FILE: '/dev/null' });
  server = await startS3Server('voices');
});
t.teardown(async () => {
  for (const [name, value] of Object.entries(outside)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  await server.stop();
});

function openStore(t: Test, options: Partial<S3Options> = {}): S3AudioStore {
  const store = new S3AudioStore({ bucket: 'voices', prefix: '', endpoint: server.endpoint, ...options });
  t.teardown(() => store.close());
  return store;
}

for (const [variable, prefix] of [
  ['AWS_ENDPOINT_URL', ''],
  ['AWS_ENDPOINT_URL_S3', 'some/prefix/'],
] as const) {
  test(`${variable} selects a server, and the prefix "${prefix}" names the object`, async (t) => {
    process.env[variable] = server.endpoint;
    t.teardown(() => delete process.env[variable]);
    const store = openAudioStore(`s3://voices/${prefix}`);
    t.teardown(() => store.close());
    await store.put('jobs/1', Buffer.from('x'), 'audio/ogg');
    const head = await server.client.send(new HeadObjectCommand({ Bucket: 'voices', Key: `${prefix}jobs/1` }));
    t.equal(head.ContentType, 'audio/ogg');
  });
}

test('a missing bucket is a store error, not an absent object', async (t) => {
  const store = openStore(t, { bucket: 'nowhere' });
  await assert.rejects(store.put('key', Buffer.from('x'), 'audio/mpeg'), isStoreError('unavailable'));
  await assert.rejects(store.open('key'), isStoreError('unavailable'));
});

test('without credentials the store is unavailable', async (t) => {
  for (const name of Object.keys(S3_CREDENTIALS)) delete process.env[name];
  process.env.AWS_EC2_METADATA_DISABLED = 'true';
  t.teardown(() => {
    Object.assign(process.env, S3_CREDENTIALS);
    delete process.env.AWS_EC2_METADATA_DISABLED;
  });
  await assert.rejects(openStore(t).open('key'), isStoreError('unavailable'));
});

test('an interrupted upload is tried three times and leaves nothing behind', async (t) => {
  let connections = 0;
  const proxy = createServer((socket) => {
    connections += 1;
    const upstream = connect(server.port, '127.0.0.1');
    upstream.on('error', () => undefined);
    let received = 0;
    socket.on('data', (chunk) => {
      received += chunk.length;
      if (received < 1_000_000) return void upstream.write(chunk);
      socket.destroy();
      upstream.destroy();
    });
    upstream.pipe(socket);
  });
  const endpoint = await serve(t, proxy);
  const audio = randomBytes(4_000_000);
  await assert.rejects(openStore(t, { endpoint }).put('broken', audio, 'audio/mpeg'), isStoreError('unavailable'));
  t.equal(connections, 3);
  t.equal(await openStore(t).open('broken'), undefined);
});

for (const [name, answer, attempts] of [
  ['a temporary fault', (response, attempt) => response.writeHead(attempt < 3 ? 503 : 200).end(), 3],
  ['an attempt without a response', (response, attempt) => attempt > 1 && response.end(), 2],
] as [string, (response: ServerResponse, attempt: number) => unknown, number][]) {
  test(`${name} is retried`, async (t) => {
    let requests = 0;
    const upstream = createHttpServer((request, response) => {
      requests += 1;
      request.resume();
      answer(response, requests);
    });
    const limits = { ...SHORT_LIMITS, put: { attemptMs: 1000, totalMs: 20_000 } };
    const store = openStore(t, { endpoint: await serve(t, upstream), limits });
    await store.put('key', Buffer.from('x'), 'audio/mpeg');
    t.equal(requests, attempts);
  });
}

test('a server that never responds times out', async (t) => {
  const endpoint = await serve(t, createServer());
  const store = openStore(t, { endpoint, limits: SHORT_LIMITS });
  await assert.rejects(store.put('key', Buffer.from('x'), 'audio/mpeg'), isStoreError('unavailable'));
  await assert.rejects(store.open('key'), isStoreError('unavailable'));
  await assert.rejects(store.delete('key'), isStoreError('unavailable'));
});

test('content that stalls fails its stream', async (t) => {
  const endpoint = await serve(t, answering(200, { 'content-length': '100' }, 'half'));
  const limits = { ...SHORT_LIMITS, other: { attemptMs: 30_000, totalMs: 30_000 } };
  const stored = await openStore(t, { endpoint, limits }).open('key');
  assert.equal(stored?.size, 100);
  await t.rejects(buffer(stored.stream), { name: 'StoreError', cause: { message: /sent nothing for \d+ ms/ } });
});

test('content may take longer than the header timeout', async (t) => {
  let finish = () => {};
  const endpoint = await serve(
    t,
    createHttpServer((_request, response) => {
      response.writeHead(200, { 'content-length': '8' }).write('half');
      finish = () => response.end('half');
    }),
  );
  const limits = { ...SHORT_LIMITS, other: { attemptMs: 3000, totalMs: 3200 }, stallMs: 60_000 };
  const stored = (await openStore(t, { endpoint, limits }).open('key')) ?? assert.fail('absent');
  // Both limits began before this wait did.
  await new Promise((resolve) => setTimeout(resolve, 3500));
  finish();
  t.equal((await buffer(stored.stream)).toString(), 'halfhalf');
});

test('an answer other than the requested part is refused', async (t) => {
  for (const [status, contentRange, length] of [
    [200, undefined, 10],
    [206, 'bytes 0-9/10', 10],
    [206, 'bytes 1-3/10', 3],
    [206, 'bytes 2-4/10', 10],
    [206, 'bytes 2-4/*', 3],
    [206, undefined, 3],
  ] as const) {
    const headers = { 'content-length': String(length), ...(contentRange && { 'content-range': contentRange }) };
    const endpoint = await serve(t, answering(status, headers, '0123456789'.slice(0, length)));
    await assert.rejects(openStore(t, { endpoint }).open('key', { start: 2, end: 4 }), isStoreError('unavailable'));
  }
});

test('a request that the clock makes invalid is repeated once, with the time of the server', async (t) => {
  const AHEAD_MS = 3_600_000;
  let requests = 0;
  let isStubborn = false;
  const endpoint = await serve(
    t,
    createHttpServer((request, response) => {
      request.resume();
      requests += 1;
      response.setHeader('date', new Date(Date.now() + AHEAD_MS).toUTCString());
      const [, y, mo, d, h, mi, s] = /^(....)(..)(..)T(..)(..)(..)Z$/.exec(String(request.headers['x-amz-date'])) ?? [];
      const isOff = Date.parse(`${y}-${mo}-${d}T${h}:${mi}:${s}Z`) < Date.now() + AHEAD_MS - 60_000;
      if (!isOff && !isStubborn) return void response.end();
      response.writeHead(403, { 'content-type': 'application/xml' });
      response.end('<?xml version="1.0"?><Error><Code>RequestTimeTooSkewed</Code><Message>no</Message></Error>');
    }),
  );
  const store = openStore(t, { endpoint });
  await store.put('key', Buffer.from('x'), 'audio/mpeg');
  await store.put('key', Buffer.from('x'), 'audio/mpeg');
  t.equal(requests, 3);
  isStubborn = true;
  await t.rejects(store.put('key', Buffer.from('x'), 'audio/mpeg'), /its clock and the clock of this machine differ/);
});

test('the code of an error decides whether the store is full', async (t) => {
  for (const [status, code, reason] of [
    [507, 'XMinioStorageFull', 'full'],
    [403, 'QuotaExceeded', 'full'],
    [400, 'XMinioAdminBucketQuotaExceeded', 'full'],
    [403, 'AccessDenied', 'unavailable'],
    [301, 'PermanentRedirect', 'unavailable'],
  ] as const) {
    const body = `<?xml version="1.0"?><Error><Code>${code}</Code><Message>no</Message></Error>`;
    const endpoint = await serve(t, answering(status, { 'content-type': 'application/xml' }, body, true));
    const put = openStore(t, { endpoint }).put('key', Buffer.from('x'), 'audio/mpeg');
    await assert.rejects(put, isStoreError(reason), code);
  }
});

function answering(status: number, headers: Record<string, string>, content: string, end = false): Server {
  const listener: RequestListener = (request, response) => {
    request.resume();
    response.writeHead(status, headers).write(content);
    if (end) response.end();
  };
  return createHttpServer(listener);
}
