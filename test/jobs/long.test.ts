import { t, test } from 'tap';
import { MAX_ATTEMPTS } from '../../src/jobs/run-job.ts';
import { audit } from '../../src/ledger/audit.ts';
import { frameLength, frameRate } from '../../src/speech/mpeg-frame.ts';
import { startChild } from '../support/child.ts';
import { killCommand } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { FUNDS, inputsOf, LIMIT, liveThrough, RATE, startLongJobs, WORKER } from '../support/long-jobs.ts';
import { longCatalog, longText, secondsOf } from '../support/long-texts.ts';
import { probe, withoutProbe } from '../support/probed-audio.ts';
import { MONO_44100, mpegFrames } from '../support/silent-audio.ts';
import { body, ControlledStream, json, mp3, openAiError, silentMp3, wav } from '../support/stub-upstream.ts';
import { toneMp3 } from '../support/tone.ts';

// They wait for retries most of the time.
t.jobs = 3;

const IN_FLIGHT = 4;

test('R6: a job of 20,000 characters outlives failures and a killed worker, charged once', async (t) => {
  const { upstream, gateway, workerEnv, account, resume, end, stored } = await startLongJobs(t);
  const tone = await toneMp3(440, 24_000, 4);
  const [good, bad] = [body(tone), openAiError(500)];
  let badUntil = 0;
  upstream.mode = (request, response) => {
    const { length } = upstream.requests;
    (length <= badUntil || length % 20 === 0 ? bad : good)(request, response);
  };
  const call = { method: 'POST', json: { text: longText(20_000) }, headers: { 'x-credit-account': account } };
  const accepted = await gateway.call('/tts', call);
  t.equal(accepted.status, 202);
  t.strictSame(accepted.json.progress, { characters: 0, total: 20_000 });

  const { jobId } = accepted.json;
  const victim = startChild(t, WORKER, workerEnv);
  await upstream.waitForRequests(25);
  await victim.stop('SIGKILL');
  const { progress } = (await gateway.call(`/tts/jobs/${jobId}`)).json;
  t.ok(progress.characters > 0 && progress.characters < 20_000, JSON.stringify(progress));
  // An attempt that makes no progress is repeated for 15 minutes after the last progress, not after the first attempt.
  badUntil = upstream.requests.length + IN_FLIGHT;
  await gateway.db
    .updateTable('job')
    .set({ started_at: new Date(Date.now() - 3_600_000) })
    .execute();
  await resume();
  const job = await end(jobId);
  t.equal(job.status, 'completed');
  t.strictSame(job.progress, { characters: 20_000, total: 20_000 });
  t.equal(await gateway.balance(account), FUNDS - 20_000n * RATE);
  t.strictSame(await audit(gateway.db), []);

  const inputs = inputsOf(upstream);
  t.ok(inputs.every((input) => input.length <= LIMIT));
  const segments = new Set(inputs).size;
  const most = segments + Math.floor(upstream.requests.length / 20) + 2 * IN_FLIGHT;
  t.ok(inputs.length <= most, `${inputs.length} requests for ${segments} segments`);
  t.equal(await stored(), segments + 1, 'the segments and their captions');

  const { bytes } = await gateway.call(new URL(job.links.audio).pathname);
  t.equal(bytes.length, job.result.sizeBytes);
  t.equal(bytes.indexOf('Xing'), bytes.lastIndexOf('Xing'), 'one frame describes the whole');
  const seconds = segments * secondsOf(tone);
  t.ok(Math.abs(secondsOf(bytes) - seconds) < seconds / 100);
  await t.test('players find no gap in it', { skip: withoutProbe }, async (t) => {
    const [single, joined] = [await probe(tone, 'mp3'), await probe(bytes, 'mp3')];
    t.ok(Math.abs(joined.seconds - segments * single.seconds) < seconds / 100);
    const [first, last] = [silenceOf(single.samples), silenceOf(single.samples.toReversed())];
    t.ok(longestSilence(joined.samples) <= first + last, 'no longer than its segments have themselves');
  });
});

const QUIET = 0.01;

/** In seconds, at the beginning. */
const silenceOf = (samples: Float32Array): number => samples.findIndex((sample) => Math.abs(sample) >= QUIET) / 24_000;

function longestSilence(samples: Float32Array): number {
  let [longest, run] = [0, 0];
  for (const sample of samples) {
    run = Math.abs(sample) < QUIET ? run + 1 : 0;
    longest = Math.max(longest, run);
  }
  return longest / 24_000;
}

test('any range of the joined audio is that part of the whole', async (t) => {
  const { upstream, gateway, accept, resume, end } = await startLongJobs(t);
  upstream.mode = (request, response) => mp3(String(request.body?.input).length * 2)(request, response);
  const jobId = await accept(longText(1_800));
  await resume();
  const { result } = await end(jobId);
  const path = `/tts/jobs/${jobId}/audio`;
  const { bytes } = await gateway.call(path);
  t.equal(bytes.length, result.sizeBytes);
  for (const [first, last] of [
    [0, 0],
    [0, 2_000],
    [100, 20_000],
    [10_000, bytes.length - 1],
    [bytes.length - 1, bytes.length + 500],
  ] as const) {
    const part = await gateway.call(path, { headers: { range: `bytes=${first}-${last}` } });
    t.equal(part.status, 206);
    t.ok(part.bytes.equals(bytes.subarray(first, last + 1)), `${first}-${last}`);
  }
  const beyond = await gateway.call(path, { headers: { range: `bytes=${bytes.length}-` } });
  t.equal(beyond.status, 416);
  t.equal((await gateway.call(path, { method: 'HEAD' })).status, 200);
});

test('each stored segment begins to count attempts anew', async (t) => {
  const { upstream, account, gateway, accept, resume, end } = await startLongJobs(t);
  upstream.mode = (request, response) =>
    (upstream.requests.length % 2 === 0 ? openAiError(500) : mp3())(request, response);
  const jobId = await accept(longText(4_000));
  await resume();
  t.equal((await end(jobId)).status, 'completed');
  const failed = inputsOf(upstream).length - new Set(inputsOf(upstream)).size;
  t.ok(failed > MAX_ATTEMPTS, `${failed} requests failed`);
  t.equal(await gateway.balance(account), FUNDS - 4_000n * RATE);
});

test('a segment of another rate than the first is spoken again', async (t) => {
  const { upstream, gateway, accept, resume, end } = await startLongJobs(t);
  const other = body(mpegFrames(MONO_44100, 200));
  upstream.mode = (request, response) => (upstream.requests.length === 6 ? other : mp3())(request, response);
  const jobId = await accept(longText(3_000));
  await resume();
  t.equal((await end(jobId)).status, 'completed');
  t.equal(upstream.requests.length, new Set(inputsOf(upstream)).size + 1);
  const { bytes } = await gateway.call(`/tts/jobs/${jobId}/audio`);
  for (let at = 0; at < bytes.length; at += frameLength(bytes, at) ?? bytes.length)
    t.equal(frameRate(bytes, at), 48_000);
});

test('captions name each sentence at its time, with the sig of the audio, and go with it', async (t) => {
  const { upstream, gateway, accept, resume, end, stored, expire } = await startLongJobs(t, {
    JOB_SIGNING_SECRET: 'a'.repeat(32),
  });
  upstream.mode = (request, response) => mp3(String(request.body?.input).length * 24)(request, response);
  const jobId = await accept(`First I <3 you & me --> here.\n\n${longText(990)}`);
  const path = `/tts/jobs/${jobId}/captions`;
  t.equal((await gateway.call(path)).status, 409);
  await resume();
  const { links } = await end(jobId);
  const { pathname, search } = new URL(links.captions);
  t.strictSame([pathname, search], [path, new URL(links.audio).search]);
  t.strictSame([(await gateway.call(path)).status, (await gateway.call(`${path}?sig=x`)).status], [401, 401]);
  const reply = await gateway.call(path + search);
  t.equal(reply.headers.get('content-type'), 'text/vtt');
  const [head, first, ...cues] = reply.text.split('\n\n');
  t.strictSame([head, first?.split('\n')[1]], ['WEBVTT', 'First I &lt;3 you &amp; me --&gt; here.']);
  t.equal(cues.length, longText(990).match(/This/g)?.length);
  const times = [...reply.text.matchAll(/(\d+):(\d\d):(\d\d\.\d{3})/g)].map(
    ([, hours, minutes, seconds]) => Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds),
  );
  t.strictSame(
    times,
    times.toSorted((a, b) => a - b),
  );
  const audio = await gateway.call(`/tts/jobs/${jobId}/audio${search}`);
  t.ok(Math.abs((times.at(-1) ?? 0) - secondsOf(audio.bytes)) < 0.1);
  await gateway.db
    .updateTable('job')
    .set({ audio_expires_at: new Date(0) })
    .execute();
  t.equal((await gateway.call(path + search)).status, 410);
  await expire();
  t.equal(await stored(), 0);
});

const CAPTIONED = [{ name: 'default', maxRequestCharacters: LIMIT, captions: 'kokoro' }];

test('captions tell when each word is spoken where the upstream does', async (t) => {
  const catalog = await longCatalog(t, LIMIT, { upstreams: CAPTIONED });
  const { upstream, gateway, accept, resume, end } = await startLongJobs(t, { CATALOG_FILE: catalog });
  const ms = 10_000;
  upstream.mode = (request, response) => {
    const input = String(request.body?.input);
    // As Kokoro-FastAPI answers: a sign is a word of its own, and it may not know any time.
    const words = input.match(/\w+|[^\w\s]/g) ?? [];
    const timestamps = words.map((word, at) => ({ word, start_time: at / 100, end_time: (at + 1) / 100 }));
    const isUnknown = input.includes('number 26 ');
    const audio = silentMp3(ms).toString('base64');
    json({ audio, audio_format: 'audio/mpeg', timestamps: isUnknown ? null : timestamps })(request, response);
  };
  const jobId = await accept(longText(1_200));
  await resume();
  t.equal((await end(jobId)).status, 'completed');
  const { path, body: order } = upstream.requests[0] ?? {};
  t.strictSame(
    [path, order?.response_format, order?.stream, order?.return_timestamps],
    ['/dev/captioned_speech', 'mp3', false, true],
  );
  const { bytes } = await gateway.call(`/tts/jobs/${jobId}/audio`);
  const seconds = (upstream.requests.length * ms) / 1000;
  t.ok(Math.abs(secondsOf(bytes) - seconds) < 0.2);
  const cues = (await gateway.call(`/tts/jobs/${jobId}/captions`)).text.split('\n\n').slice(1);
  const marked = ['is', 'sentence', 'number', '1', 'of', 'a', 'long', 'book']
    .map((word, index) => ` <00:00:00.0${index + 1}0>${word}`)
    .join('');
  t.equal(cues[0], `00:00:00.000 --> 00:00:00.090\nThis${marked}.`);
  const second = cues.find((cue) => cue.startsWith('00:00:09.9') || cue.startsWith('00:00:10.0'));
  t.match(second ?? '', /\nThis <00:00:\d\d\.\d+>is /, 'the second segment begins behind the first');
  t.match(cues.find((cue) => cue.includes('number 26 ')) ?? '', /\nThis is sentence number 26 of/);
});

test('an answer for captions that is no JSON fails the job, uncharged', async (t) => {
  const catalog = await longCatalog(t, LIMIT, { upstreams: CAPTIONED });
  const { upstream, gateway, account, accept, resume, end } = await startLongJobs(t, { CATALOG_FILE: catalog });
  upstream.mode = mp3();
  const jobId = await accept(longText(1_200));
  await resume();
  const job = await end(jobId);
  t.strictSame([job.status, job.error.code], ['failed', 'TTS_UPSTREAM_ERROR']);
  t.equal(await gateway.balance(account), FUNDS);
});

test('a segment that fails for good fails the job, uncharged, and the others are deleted', async (t) => {
  const { upstream, gateway, account, accept, resume, end, stored, expire } = await startLongJobs(t);
  await resume();
  const isLast = (input: unknown) => String(input).includes('number 60 ');
  for (const mode of [openAiError(400), wav()]) {
    upstream.mode = (request, response) => (isLast(request.body?.input) ? mode : mp3())(request, response);
    const job = await end(await accept(longText(3_000)));
    t.strictSame([job.status, job.error.code], ['failed', 'TTS_UPSTREAM_ERROR']);
    t.equal(await gateway.balance(account), FUNDS);
    t.ok((await stored()) > 0);
    await expire();
    t.equal(await stored(), 0);
    t.strictSame(await audit(gateway.db), []);
  }
});

test('storeAudio=false keeps the segments only until the job ends', async (t) => {
  const { gateway, account, accept, resume, end, stored, expire } = await startLongJobs(t);
  const jobId = await accept(longText(1_200), '&storeAudio=false');
  await resume();
  const job = await end(jobId);
  t.strictSame([job.status, job.result.stored, job.links.audio], ['completed', false, null]);
  t.equal((await gateway.call(`/tts/jobs/${jobId}/audio`)).status, 410);
  await expire();
  t.equal(await stored(), 0);
  t.equal(await gateway.balance(account), FUNDS - 1_200n * RATE);
});

test('segments without a word are passed over', async (t) => {
  const { upstream, accept, resume, end } = await startLongJobs(t);
  const [one, two] = [longText(480), longText(490)];
  const stars = '* '.repeat(240);
  const jobId = await accept(`${one}\n\n${stars}\n\n${two}`);
  await resume();
  const job = await end(jobId);
  t.equal(job.status, 'completed');
  t.equal(job.progress.characters, job.progress.total);
  t.strictSame(inputsOf(upstream).sort(), [one, two].sort());
});

const CASES = killCases<'test/jobs/long.test.ts', number>('test/jobs/long.test.ts', {
  // It is spoken again, and what the dead worker stored of it is deleted.
  'segment stored': 1,
  'segment recorded': 0,
});

for (const [point, again] of CASES) {
  test(`kill -9 of a long job at "${point}": another process speaks what is missing`, async (t) => {
    const { upstream, gateway, workerEnv, account, accept, resume, end, stored } = await startLongJobs(t);
    const jobId = await accept(longText(3_000));
    const env = { ...workerEnv, SPEECHGATE_TEST_KILL_VISIT: '3' };
    await killCommand(t, point, { program: WORKER, env });
    await resume();
    t.equal((await end(jobId)).status, 'completed');
    const inputs = inputsOf(upstream);
    const segments = new Set(inputs).size;
    t.ok(inputs.length >= segments + again && inputs.length <= segments + IN_FLIGHT);
    t.equal(await stored(), segments + 1);
    t.equal(await gateway.balance(account), FUNDS - 3_000n * RATE);
    t.strictSame(await audit(gateway.db), []);
  });
}

test('a worker that was paused changes nothing of a long job that was taken over', async (t) => {
  const { upstream, gateway, workerEnv, account, accept, resume, end, stored } = await startLongJobs(t);
  const slow = new ControlledStream();
  upstream.mode = (request, response) => (upstream.requests.length === 6 ? slow.mode : mp3())(request, response);
  const jobId = await accept(longText(3_000));
  const paused = startChild(t, WORKER, workerEnv);
  await slow.opened;
  paused.process.kill('SIGSTOP');
  await resume();
  const job = await end(jobId);
  const path = new URL(job.links.audio).pathname;
  const { bytes } = await gateway.call(path);
  paused.process.kill('SIGCONT');
  await slow.write(silentMp3(9_000));
  slow.end();
  await paused.printed(/took over this job/);
  t.ok((await gateway.call(path)).bytes.equals(bytes));
  t.equal(await stored(), new Set(inputsOf(upstream)).size + 1);
  t.equal(await gateway.balance(account), FUNDS - 3_000n * RATE);
  t.strictSame(await audit(gateway.db), []);
});

test('whatever fails or dies, a long job ends charged and complete, or not charged', (t) => liveThrough(t, 3));
