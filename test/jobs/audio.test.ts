import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'tap';
import { createLinkSigner } from '../../src/audio/link-token.ts';
import { later, untilJob } from '../support/jobs.ts';
import { openAiError } from '../support/stub-upstream.ts';
import { path, start } from './stored-audio.ts';

const SECRET = 'a secret of thirty-two bytes or more';
const OLD_SECRET = 'another secret that signed before this one';

test('audio is played in place, is never kept by a cache, and is read in parts', async (t) => {
  const { gateway, complete } = await start(t);
  const { jobId, links } = await complete();
  const url = path(links.audio);
  assert.equal(url, `/tts/jobs/${jobId}/audio`, 'unsigned');
  const whole = await gateway.call(url);
  const size = 16_128;
  assert.equal(whole.status, 200);
  assert.equal(whole.bytes.length, size);
  assert.equal(whole.headers.get('content-type'), 'audio/mpeg');
  assert.equal(whole.headers.get('content-length'), String(size));
  assert.equal(whole.headers.get('content-disposition'), `inline; filename="speech-${jobId}.mp3"`);
  assert.equal(whole.headers.get('accept-ranges'), 'bytes');
  assert.equal(whole.headers.get('cache-control'), 'private, no-store');

  const parts: [range: string, first: number, last: number][] = [
    ['bytes=0-0', 0, 0],
    ['bytes=0-1023', 0, 1023],
    ['bytes=1000-', 1000, size - 1],
    ['bytes=-100', size - 100, size - 1],
    ['bytes=16000-99999', 16_000, size - 1],
    ['bytes=-99999', 0, size - 1],
  ];
  for (const [range, first, last] of parts) {
    const part = await gateway.call(url, { headers: { range } });
    assert.equal(part.status, 206, range);
    assert.equal(part.headers.get('content-range'), `bytes ${first}-${last}/${size}`);
    assert.equal(part.headers.get('content-length'), String(last - first + 1));
    assert.deepEqual(part.bytes, whole.bytes.subarray(first, last + 1));
  }
  for (const range of ['bytes=16128-', 'bytes=99999-', 'bytes=-0']) {
    const refused = await gateway.call(url, { headers: { range } });
    assert.equal(refused.status, 416, range);
    assert.equal(refused.headers.get('content-range'), `bytes */${size}`);
    assert.equal(refused.json.error.code, 'INVALID_REQUEST');
  }
  for (const range of ['bytes=0-1,5-6', 'bytes=5-1', 'lines=0-1', 'nonsense']) {
    const all = await gateway.call(url, { headers: { range } });
    assert.deepEqual([all.status, all.bytes.length], [200, size], range);
  }
  const stale = await gateway.call(url, { headers: { range: 'bytes=0-9', 'if-range': '"tag"' } });
  assert.deepEqual([stale.status, stale.bytes.length], [200, size], 'If-Range never matches: there are no validators');

  const head = await gateway.call(url, { method: 'HEAD', headers: { range: 'bytes=0-9' } });
  assert.deepEqual([head.status, head.headers.get('content-length'), head.bytes.length], [200, String(size), 0]);
  // The audio of a job is paid for once, however often it is fetched.
  assert.equal((await gateway.db.selectFrom('transfer').selectAll().where('kind', '=', 'charge').execute()).length, 1);
});

test('R50: an invalid sig, then an unknown or failed job, one that is not ready, one not stored, a missing sig', async (t) => {
  const { upstream, gateway, account, complete } = await start(t, { JOB_SIGNING_SECRET: `${SECRET},${OLD_SECRET}` });
  const signer = createLinkSigner('job-audio', [SECRET]);
  const later1h = new Date(Date.now() + 3_600_000);
  const completed = await complete();
  const other = await complete();
  const unstored = await complete('&storeAudio=false');
  upstream.mode = openAiError(400);
  const failed = (await later(gateway, account)).json;
  await untilJob(gateway, failed.jobId, 'failed');
  upstream.mode = () => {};
  const processing = (await later(gateway, account)).json;
  await untilJob(gateway, processing.jobId, 'processing');
  const second = (await later(gateway, account)).json;
  await untilJob(gateway, second.jobId, 'processing');
  const queued = (await later(gateway, account)).json;
  const unknown = randomUUID();

  const valid = new URL(completed.links.audio).searchParams.get('sig') as string;
  assert.ok(valid.length <= 1500);
  assert.equal(completed.result.audioUrl, completed.links.audio);
  assert.equal((await gateway.call(path(completed.links.audio))).status, 200);

  const bad = [
    '',
    'x',
    'a.b.c',
    'x'.repeat(1501),
    'x'.repeat(20_000),
    `${valid}x`,
    valid.slice(0, -1),
    await signer.sign(other.jobId, later1h),
    await signer.sign(completed.jobId, new Date(Date.now() - 1000)),
    await createLinkSigner('job-audio', ['a secret that this deployment never had']).sign(completed.jobId, later1h),
  ];
  const ids = [unknown, failed.jobId, queued.jobId, processing.jobId, unstored.jobId, completed.jobId, 'no-uuid'];
  for (const id of ids) {
    for (const sig of bad) {
      if (id !== completed.jobId && bad.indexOf(sig) > 2) continue;
      const reply = await gateway.call(`/tts/jobs/${id}/audio?sig=${sig}`);
      assert.deepEqual([reply.status, reply.json.error.code], [401, 'UNAUTHORIZED'], `${id} ${sig.slice(0, 20)}`);
      assert.ok(sig === '' || !reply.text.includes(sig));
    }
  }
  const rows: [id: string, status: number, code: string][] = [
    [unknown, 404, 'NOT_FOUND'],
    [failed.jobId, 404, 'NOT_FOUND'],
    [queued.jobId, 409, 'JOB_NOT_READY'],
    [processing.jobId, 409, 'JOB_NOT_READY'],
    [unstored.jobId, 410, 'AUDIO_NOT_STORED'],
  ];
  for (const [id, status, code] of rows) {
    const answers = [
      await gateway.call(`/tts/jobs/${id}/audio`),
      await gateway.call(`/tts/jobs/${id}/audio?sig=${await signer.sign(id, later1h)}`),
    ];
    for (const reply of answers) assert.deepEqual([reply.status, reply.json.error.code], [status, code], id);
    if (status === 409) assert.equal(answers[0]?.headers.get('retry-after'), '1');
  }
  const missing = await gateway.call(`/tts/jobs/${completed.jobId}/audio`);
  assert.deepEqual([missing.status, missing.json.error.code], [401, 'UNAUTHORIZED']);
  const twice = await gateway.call(`${path(completed.links.audio)}&sig=x`);
  assert.deepEqual([twice.status, twice.json.error.code], [400, 'INVALID_REQUEST'], 'R49');

  const rotated = await createLinkSigner('job-audio', [OLD_SECRET]).sign(completed.jobId, later1h);
  assert.equal((await gateway.call(`/tts/jobs/${completed.jobId}/audio?sig=${rotated}`)).status, 200);
  assert.equal((await gateway.call(`/tts/jobs/${completed.jobId.toUpperCase()}/audio?sig=${valid}`)).status, 200);
  // Nobody waits for the synthesis that hangs.
  await upstream.close();
});

test('where links are unsigned, a sig is ignored', async (t) => {
  const { gateway, complete } = await start(t);
  const { links } = await complete();
  for (const sig of ['', 'x', 'x'.repeat(3000)]) {
    assert.equal((await gateway.call(`${path(links.audio)}?sig=${sig}`)).status, 200);
  }
});

test('R48: a valid sig is its own bucket, whatever else is shown costs the address a slot', async (t) => {
  const { gateway, complete } = await start(t, { JOB_SIGNING_SECRET: SECRET, RATE_LIMIT_MAX: '3' });
  const [one, two] = [path((await complete()).links.audio), path((await complete()).links.audio)];
  const scopes = async (url: string) => {
    const reply = await gateway.call(url);
    return [reply.status, reply.headers.get('x-ratelimit-scope'), reply.headers.get('x-ratelimit-remaining')];
  };
  assert.deepEqual(await scopes(one), [200, 'audio', '2']);
  assert.deepEqual(await scopes(one), [200, 'audio', '1']);
  assert.deepEqual(await scopes(two), [200, 'audio', '2']);
  assert.deepEqual(await scopes(one), [200, 'audio', '0']);
  const refused = await gateway.call(one);
  assert.deepEqual([refused.status, refused.json.error.code], [429, 'RATE_LIMITED']);
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  assert.deepEqual(await scopes(`/tts/jobs/${randomUUID()}/audio?sig=x`), [401, 'ip', '2']);
  assert.deepEqual(await scopes(`/tts/jobs/${randomUUID()}/audio`), [404, 'ip', '1']);
  assert.deepEqual(await scopes(one.replace(/[?].*/, '')), [401, 'ip', '0']);
  assert.deepEqual(await scopes(`${two}x`), [429, 'ip', '0']);
  assert.deepEqual(await scopes(two), [200, 'audio', '1'], 'a valid sig is not held up by it');
});

test('where links are unsigned, the address is the bucket', async (t) => {
  const { gateway, complete } = await start(t, { RATE_LIMIT_MAX: '5' });
  const url = path((await complete()).links.audio);
  const reply = await gateway.call(`${url}?sig=anything`);
  assert.deepEqual([reply.status, reply.headers.get('x-ratelimit-scope')], [200, 'ip']);
});
