/** A book goes through a job whose workers fail and are killed, and comes out whole. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createWriteStream, readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { type Child, startChild } from '../../test/support/child.ts';
import { later } from '../../test/support/jobs.ts';
import { inputsOf, LIMIT, liveThrough, RATE, startLongJobs, WORKER } from '../../test/support/long-jobs.ts';
import { longText, secondsOf } from '../../test/support/long-texts.ts';
import { withoutProbe } from '../../test/support/probed-audio.ts';
import { mp3, openAiError, silentMp3 } from '../../test/support/stub-upstream.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { until } from '../../test/support/until.ts';

const CHARACTERS = 300_000;
const CENTS = 1_000;
const FUNDS = 10_000_000n;
const KILLS = 2;
const FAILS_EVERY = 20;
const HOUR_MS = 3_600_000;
const MAX_MEMORY_BYTES = 60 * 2 ** 20;
/** As long as people take to say it. */
const CHARACTER_MS = 60;

test('a book of five hours outlives killed workers as one MP3, with flat memory', {
  skip: withoutProbe,
}, async (t) => {
  const { upstream, gateway, workerEnv, takeOver } = await startLongJobs(t);
  upstream.mode = (request, response) => {
    const isGood = upstream.requests.length % FAILS_EVERY !== 0;
    (isGood ? mp3(String(request.body?.input).length * CHARACTER_MS) : openAiError(500))(request, response);
  };
  const account = await gateway.fund(CENTS);
  const { jobId } = (await later(gateway, account, { text: longText(CHARACTERS) })).json;
  const jobOf = async () => (await gateway.call(`/tts/jobs/${jobId}`)).json;
  for (let kill = 1; kill <= KILLS; kill++) {
    const victim = await startWatched();
    const enough = (CHARACTERS * kill) / (KILLS + 1);
    await until(async () => (await jobOf()).progress.characters > enough, HOUR_MS);
    await victim.stop('SIGKILL');
    await takeOver();
  }
  const worker = await startWatched();
  await until(async () => /completed|failed/.test((await jobOf()).status), HOUR_MS);
  await worker.stop();
  const job = await jobOf();
  assert.equal(job.status, 'completed', JSON.stringify(job.error));
  t.strictSame(job.progress, { characters: CHARACTERS, total: CHARACTERS });
  t.equal(await gateway.balance(account), FUNDS - BigInt(CHARACTERS) * RATE);
  t.strictSame(await audit(gateway.db), []);

  const path = join(await temporaryFolder(t), 'book.mp3');
  const endReading = watchMemory(process.pid, 'reading the audio');
  const response = await fetch(gateway.url + new URL(job.links.audio).pathname);
  await pipeline(Readable.fromWeb(response.body as never), createWriteStream(path));
  endReading();
  t.equal((await stat(path)).size, job.result.sizeBytes);
  const segments = [...new Set(inputsOf(upstream))];
  t.ok(segments.length >= CHARACTERS / LIMIT);
  const spoken = segments.reduce((sum, { length }) => sum + secondsOf(silentMp3(length * CHARACTER_MS)), 0);
  const played = await secondsPlayed(path);
  console.error(`${segments.length} segments by ${upstream.requests.length} requests: ${played} s of ${spoken} s`);
  t.ok(Math.abs(played - spoken) < spoken / 100);

  async function startWatched(): Promise<Child> {
    const before = upstream.requests.length;
    const child = startChild(t, WORKER, workerEnv);
    await upstream.waitForRequests(before + 1);
    const endWatching = watchMemory(child.process.pid as number, 'a worker');
    return {
      ...child,
      stop: (signal) => {
        endWatching();
        return child.stop(signal);
      },
    };
  }
});

test('a hundred long jobs that fail and die end charged and complete, or not charged', (t: Test) =>
  liveThrough(t, 100));

/** Watches the resident memory of a process. @returns a function that ends it, and throws where it has grown too much */
function watchMemory(pid: number, what: string): () => void {
  const read = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
  const first = read();
  let most = first;
  const timer = setInterval(() => {
    most = Math.max(most, read());
  }, 200);
  return () => {
    clearInterval(timer);
    console.error(`${what}: ${Math.round((most - first) / 2 ** 20)} MiB more than ${Math.round(first / 2 ** 20)} MiB`);
    assert.ok(most - first <= MAX_MEMORY_BYTES, what);
  };
}

/** How long ffmpeg plays it, without a complaint. */
async function secondsPlayed(path: string): Promise<number> {
  const args = ['-nostdin', '-nostats', '-v', 'warning', '-progress', 'pipe:1', '-i', path, '-f', 'null', '-'];
  const { stdout, stderr } = await promisify(execFile)('ffmpeg', args);
  assert.equal(stderr, '');
  return Number([...stdout.matchAll(/^out_time_us=(\d+)$/gm)].at(-1)?.[1]) / 1e6;
}
