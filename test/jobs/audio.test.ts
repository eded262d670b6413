import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Test, t, test } from 'tap';
import { createLinkSigner } from '../../src/speech/store/link-token.ts';
import { openAudioStore } from '../../src/speech/store/open-store.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { runTurn } from '../support/reconcile.ts';
import { openAiError, testUpstream } from '../support/stub-upstream.ts';

async function start(t: Test, env: Record<string, string> = {}) {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }, { worker: true });
  const account = await gateway.fund(500);
  const complete = async (query = '') => {
    const { jobId } = (await later(gateway, account, { query })).json;
    return (await untilJob(gateway, jobId, 'completed')).json;
  };
  return { upstream, gateway, account, complete };
}

/** Of unsigned links. */
const unsigned = await start(t, { AUDIO_RETENTION_SECONDS: '3600' });

const path = (url: string) => url.slice(url.indexOf('/tts/'));

const SECRET = 'a secret of thirty-two bytes or more';
const OLD_SECRET = 'another secret that signed before this one';

test('audio is inline, never cached and served in ranges', async (t) => {
  const { gateway, complete } = unsigned;
  const { jobId, links } = await complete();
  const url = path(links.audio);
  t.equal(url, `/tts/jobs/${jobId}/audio`, 'unsigned');
  const whole = await gateway.call(url);
  const size = 16_128;
  t.equal(whole.status, 200);
  t.equal(whole.bytes.length, size);
  t.equal(whole.headers.get('content-type'), 'audio/mpeg');
  t.equal(whole.headers.get('content-length'), String(size));
  t.equal(whole.headers.get('content-disposition'), `inline; filename="speech-${jobId}.mp3"`);
  t.equal(whole.headers.get('accept-ranges'), 'bytes');
  t.equal(whole.headers.get('cache-control'), 'private, no-store');

  for (const [range, first, last] of [
    ['bytes=0-1023', 0, 1023],
    ['bytes=-100', size - 100, size - 1],
    ['bytes=16000-99999', 16_000, size - 1],
  ] as const) {
    const part = await gateway.call(url, { headers: { range } });
    t.equal(part.status, 206, range);
    t.equal(part.headers.get('content-range'), `bytes ${first}-${last}/${size}`);
    t.equal(part.headers.get('content-length'), String(last - first + 1));
    t.strictSame(part.bytes, whole.bytes.subarray(first, last + 1));
  }
  const refused = await gateway.call(url, { headers: { range: 'bytes=16128-' } });
  t.strictSame([refused.status, refused.json.error.code], [416, 'INVALID_REQUEST']);
  t.equal(refused.headers.get('content-range'), `bytes */${size}`);
  const several = await gateway.call(url, { headers: { range: 'bytes=0-1,5-6' } });
  t.strictSame([several.status, several.bytes.length], [200, size]);
  const stale = await gateway.call(url, { headers: { range: 'bytes=0-9', 'if-range': '"tag"' } });
  t.strictSame([stale.status, stale.bytes.length], [200, size], 'If-Range never matches: there are no validators');

  const head = await gateway.call(url, { method: 'HEAD', headers: { range: 'bytes=0-9' } });
  t.strictSame([head.status, head.headers.get('content-length'), head.bytes.length], [200, String(size), 0]);
  for (const sig of ['', 'x', 'x'.repeat(3000)]) {
    const { status, headers } = await gateway.call(`${url}?sig=${sig}`);
    t.strictSame([status, headers.get('x-ratelimit-scope')], [200, 'ip'], 'an unsigned link ignores a sig');
  }
  // The audio of a job is paid for once, however often it is fetched.
  t.equal((await gateway.db.selectFrom('transfer').selectAll().where('kind', '=', 'charge').execute()).length, 1);
});

test('R50: audio errors come in the order 401, 404, 409, 410, missing sig', async (t) => {
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
  t.ok(valid.length <= 1500);
  t.equal(completed.result.audioUrl, completed.links.audio);
  t.equal((await gateway.call(path(completed.links.audio))).status, 200);

  const bad: [id: string, sig: string][] = [
    [completed.jobId, 'x'.repeat(20_000)],
    [completed.jobId, `${valid}x`],
    [completed.jobId, await signer.sign(other.jobId, later1h)],
    [completed.jobId, await signer.sign(completed.jobId, new Date(Date.now() - 1000))],
    [completed.jobId, await createLinkSigner('job-audio', ['x'.repeat(32)]).sign(completed.jobId, later1h)],
    ...[unknown, failed.jobId, queued.jobId, processing.jobId, unstored.jobId, completed.jobId, 'no-uuid'].flatMap(
      (id): [string, string][] => [
        [id, ''],
        [id, '~'],
      ],
    ),
  ];
  for (const [id, sig] of bad) {
    const reply = await gateway.call(`/tts/jobs/${id}/audio?sig=${sig}`);
    t.strictSame([reply.status, reply.json.error.code], [401, 'UNAUTHORIZED'], `${id} ${sig.slice(0, 20)}`);
    t.ok(sig === '' || !reply.text.includes(sig));
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
    for (const reply of answers) t.strictSame([reply.status, reply.json.error.code], [status, code], id);
    if (status === 409) t.equal(answers[0]?.headers.get('retry-after'), '1');
  }
  const missing = await gateway.call(`/tts/jobs/${completed.jobId}/audio`);
  t.strictSame([missing.status, missing.json.error.code], [401, 'UNAUTHORIZED']);
  const twice = await gateway.call(`${path(completed.links.audio)}&sig=x`);
  t.strictSame([twice.status, twice.json.error.code], [400, 'INVALID_REQUEST'], 'R49');

  const rotated = await createLinkSigner('job-audio', [OLD_SECRET]).sign(completed.jobId, later1h);
  t.equal((await gateway.call(`/tts/jobs/${completed.jobId}/audio?sig=${rotated}`)).status, 200);
  t.equal((await gateway.call(`/tts/jobs/${completed.jobId.toUpperCase()}/audio?sig=${valid}`)).status, 200);
  // Nobody waits for the synthesis that hangs.
  await upstream.close();
});

test('R48: a valid sig has its own bucket, anything else uses the address', async (t) => {
  const { gateway, complete } = await start(t, { JOB_SIGNING_SECRET: SECRET, RATE_LIMIT_MAX: '3' });
  const [one, two] = [path((await complete()).links.audio), path((await complete()).links.audio)];
  const scopes = async (url: string) => {
    const reply = await gateway.call(url);
    return [reply.status, reply.headers.get('x-ratelimit-scope'), reply.headers.get('x-ratelimit-remaining')];
  };
  t.strictSame(await scopes(one), [200, 'audio', '2']);
  t.strictSame(await scopes(one), [200, 'audio', '1']);
  t.strictSame(await scopes(two), [200, 'audio', '2']);
  t.strictSame(await scopes(one), [200, 'audio', '0']);
  const refused = await gateway.call(one);
  t.strictSame([refused.status, refused.json.error.code], [429, 'RATE_LIMITED']);
  t.ok(Number(refused.headers.get('retry-after')) >= 1);
  t.strictSame(await scopes(`/tts/jobs/${randomUUID()}/audio?sig=x`), [401, 'ip', '2']);
  t.strictSame(await scopes(`/tts/jobs/${randomUUID()}/audio`), [404, 'ip', '1']);
  t.strictSame(await scopes(one.replace(/[?].*/, '')), [401, 'ip', '0']);
  t.strictSame(await scopes(`${two}x`), [429, 'ip', '0']);
  t.strictSame(await scopes(two), [200, 'audio', '1'], 'a valid sig is not held up by it');
});

/** The key of a job's first owner, whose fence is 2, and the directory of that object. */
const ownerKey = (jobId: string, owner: number) => `jobs/${jobId}/${owner}`;
const firstKey = (jobId: string) => ownerKey(jobId, 2);
const directoryOf = (key: string) => createHash('sha256').update(key).digest('hex').slice(0, 2);
const stored = (gateway: Gateway) => openAudioStore(gateway.config.jobs.audioStore);

test('audio is deleted after AUDIO_RETENTION_SECONDS, and its download is 410', async (t) => {
  const { gateway, complete } = unsigned;
  const [old, young] = [await complete(), await complete()];
  const { rows } = await sql<{ seconds: number }>`
    select extract(epoch from audio_expires_at - completed_at)::double precision as seconds from job
    where id in (${old.jobId}, ${young.jobId})`.execute(gateway.db);
  t.strictSame(rows, [{ seconds: 3600 }, { seconds: 3600 }]);
  const store = stored(gateway);
  t.teardown(() => store.close());
  t.equal((await runTurn(gateway, 'expired_audio')).count, 0);

  // What an earlier owner stored before it died goes too.
  const { fence } = await gateway.db
    .selectFrom('job')
    .select('fence')
    .where('id', '=', old.jobId)
    .executeTakeFirstOrThrow();
  await gateway.db.updateTable('job').set({ audio_expires_at: sql<Date>`now()` }).where('id', '=', old.jobId).execute();
  await store.put(`jobs/${old.jobId}/${fence - 1}`, Buffer.from('of an earlier owner'), 'audio/mpeg');

  const isGone = async () => {
    const job = (await gateway.call(`/tts/jobs/${old.jobId}`)).json;
    assert.equal(job.status, 'completed');
    assert.deepEqual(job.result, { audioUrl: null, stored: false, mimeType: 'audio/mpeg', sizeBytes: 16_128 });
    assert.equal(job.links.audio, null);
    const audio = await gateway.call(path(old.links.audio));
    assert.deepEqual([audio.status, audio.json.error.code], [410, 'AUDIO_NOT_STORED']);
  };
  await isGone();
  t.equal((await runTurn(gateway, 'expired_audio')).count, 1);
  t.equal((await runTurn(gateway, 'expired_audio')).count, 0, 'once');
  t.equal(await store.open(`jobs/${old.jobId}/${fence}`), undefined);
  t.equal(await store.open(`jobs/${old.jobId}/${fence - 1}`), undefined);
  await isGone();
  t.equal((await gateway.call(path(young.links.audio))).status, 200);
});

test('a failed deletion is retried and does not block other deletions', async (t) => {
  const { gateway, complete } = unsigned;
  const bad = await complete();
  let good = await complete();
  const unusable = directoryOf(firstKey(bad.jobId));
  // Objects share 256 directories, and those of each owner are deleted.
  while ([1, 2].some((owner) => directoryOf(ownerKey(good.jobId, owner)) === unusable)) good = await complete();
  await gateway.db
    .updateTable('job')
    .set({ audio_expires_at: sql<Date>`now()` })
    .where('id', 'in', [bad.jobId, good.jobId])
    .execute();
  const directory = join(gateway.config.dataDir, 'audio', unusable);
  await rename(directory, `${directory}.away`);
  await writeFile(directory, 'in its place');
  const first = await runTurn(gateway, 'expired_audio');
  t.strictSame([first.outcome, first.count], ['failed', 1]);
  t.equal(await stored(gateway).open(firstKey(good.jobId)), undefined);
  await rm(directory);
  await rename(`${directory}.away`, directory);
  const second = await runTurn(gateway, 'expired_audio');
  t.strictSame([second.outcome, second.count], ['done', 1]);
  t.equal(await stored(gateway).open(firstKey(bad.jobId)), undefined);
});

test('missing audio is 404, and an unavailable store is 503', async (t) => {
  const { gateway, complete } = unsigned;
  const { jobId, links } = await complete();
  await stored(gateway).delete(firstKey(jobId));
  const gone = await gateway.call(path(links.audio));
  t.strictSame([gone.status, gone.json.error.code], [404, 'NOT_FOUND']);
  const another = await complete();
  const away = join(gateway.config.dataDir, 'audio');
  await rm(away, { recursive: true });
  await writeFile(away, 'no directory');
  const reply = await gateway.call(path(another.links.audio));
  t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  t.ok(!reply.text.includes(gateway.config.dataDir));
});
