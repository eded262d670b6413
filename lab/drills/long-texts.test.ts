/** A book goes through a job whose workers fail and are killed; what comes out is measured and heard. */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, readFileSync } from 'node:fs';
import { stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { startVoiceServer } from '../../src/sandbox/voice/voice-server.ts';
import { splitText } from '../../src/speech/split-text.ts';
import { type Child, startChild } from '../../test/support/child.ts';
import { later } from '../../test/support/jobs.ts';
import { liveThrough, RATE, startLongJobs, WORKER } from '../../test/support/long-jobs.ts';
import { secondsOf } from '../../test/support/long-texts.ts';
import { withoutProbe } from '../../test/support/probed-audio.ts';
import { openAiError } from '../../test/support/stub-upstream.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { toneMp3 } from '../../test/support/tone.ts';
import { until } from '../../test/support/until.ts';
import { hear, withoutRecognizer } from './hearing.ts';

const CHARACTERS = 300_000;
const CENTS = 1_000;
const FUNDS = 10_000_000n;
const KILLS = 2;
const FAILS_EVERY = 20;
const HOUR_MS = 3_600_000;
const MAX_MEMORY_BYTES = 60 * 2 ** 20;
const MAX_GAP_SECONDS = 0.06;
const MAX_CAPTION_ERROR_SECONDS = 0.1;
const JOINTS = 10;
/** Of the sentences before and behind the joints: the recognizer misses some words of this voice anywhere. */
const LEAST_UNDERSTOOD = 18;
const SENTENCE_SECONDS = 6;
const RATE_HZ = 24_000;
const run = promisify(execFile);

test('the voice that ships speaks a book, and its joints are understood', {
  skip: withoutRecognizer || withoutProbe,
}, async (t) => {
  const voice = await startVoiceServer({ port: 0, maxWaitMs: HOUR_MS });
  t.teardown(() => voice.close());
  const book = await speakBook(t, 2_000, async (body) => {
    const response = await fetch(`${voice.baseUrl}/audio/speech`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return Buffer.from(await response.arrayBuffer());
  });
  await heardWhole(book);
  const joints = new Set<number>();
  while (joints.size < JOINTS) joints.add(1 + Math.floor(Math.random() * (book.parts.length - 1)));
  let understood = 0;
  for (const joint of joints) {
    const at = book.startOf(joint);
    const sentencesOf = (part: number) => (book.parts[part] as string).trim().split(/(?<=\.)\s+/);
    if (await isHeard(book.path, at - SENTENCE_SECONDS, sentencesOf(joint - 1).at(-1) as string)) understood++;
    if (await isHeard(book.path, at, sentencesOf(joint)[0] as string)) understood++;
  }
  t.ok(understood >= LEAST_UNDERSTOOD, `${understood} of ${2 * JOINTS} sentences`);
});

test('a tone for each segment of a book has no gap, and captions name where it begins', {
  skip: withoutProbe,
}, async (t) => {
  const tones = new Map<string, Uint8Array>();
  const book = await speakBook(t, 500, async ({ input }, segment) => {
    const [hertz, seconds] = [segment % 2 === 0 ? 440 : 880, 2 + (input.length % 10) / 10];
    const key = `${hertz} ${seconds}`;
    const audio = tones.get(key) ?? (await toneMp3(hertz, RATE_HZ, seconds));
    tones.set(key, audio);
    return audio;
  });
  const { gaps, changes } = await heardWhole(book);
  console.error(`longest gap: ${Math.max(0, ...gaps)} s`);
  t.strictSame(
    gaps.filter((seconds) => seconds > MAX_GAP_SECONDS),
    [],
  );
  t.equal(changes.length, book.parts.length - 1);
  const errors = changes.map((at, index) => Math.abs(at - book.startOf(index + 1)));
  console.error(`captions are at most ${Math.max(...errors)} s from where a segment begins`);
  t.ok(errors.every((error) => error <= MAX_CAPTION_ERROR_SECONDS));
});

test('a hundred long jobs that fail and die end charged and complete, or not charged', (t) => liveThrough(t, 100));

type SpeechBody = { readonly input: string };
type Speak = (body: SpeechBody, segment: number) => Promise<Uint8Array>;
type Book = Awaited<ReturnType<typeof speakBook>>;

/** Speaks a book in a job by an upstream that fails now and then. Two workers are killed. */
async function speakBook(t: Test, limit: number, speak: Speak) {
  const { upstream, gateway, workerEnv, takeOver } = await startLongJobs(t, {}, limit);
  const account = await gateway.fund(CENTS);
  const text = proseOf(CHARACTERS);
  const split = splitText(text, limit);
  assert.ok(split.outcome === 'split');
  const parts = split.parts;
  const seconds = new Map<number, number>();
  upstream.mode = async (request, response) => {
    const body = request.body as SpeechBody;
    const segment = parts.findIndex((part) => part.trim() === body.input);
    if (upstream.requests.length % FAILS_EVERY === 0) return openAiError(500)(request, response);
    const audio = await speak(body, segment);
    seconds.set(segment, secondsOf(audio));
    response.writeHead(200, { 'content-type': 'audio/mpeg', 'content-length': audio.length }).end(audio);
  };

  const begunAt = performance.now();
  const { jobId } = (await later(gateway, account, { text })).json;
  for (let kill = 1; kill <= KILLS; kill++) {
    const victim = await startWatched(t);
    await until(async () => seconds.size > (parts.length * kill) / (KILLS + 1), HOUR_MS);
    await victim.stop('SIGKILL');
    await takeOver();
  }
  const worker = await startWatched(t);
  const jobOf = async () => (await gateway.call(`/tts/jobs/${jobId}`)).json;
  await until(async () => /completed|failed/.test((await jobOf()).status), HOUR_MS);
  await worker.stop();
  const job = await jobOf();
  assert.equal(job.status, 'completed', JSON.stringify(job.error));
  assert.deepEqual(job.progress, { characters: CHARACTERS, total: CHARACTERS });
  assert.equal(await gateway.balance(account), FUNDS - BigInt(CHARACTERS) * RATE);
  assert.deepEqual(await audit(gateway.db), []);
  const spoken = [...seconds.values()].reduce((sum, each) => sum + each, 0);
  console.error(
    `${parts.length} segments of ${Math.round(spoken)} s by ${upstream.requests.length} requests in ` +
      `${Math.round((performance.now() - begunAt) / 1000)} s`,
  );

  const path = join(await temporaryFolder(t), 'book.mp3');
  const memory = watchMemory(process.pid);
  const response = await fetch(gateway.url + new URL(job.links.audio).pathname);
  await pipeline(Readable.fromWeb(response.body as never), createWriteStream(path));
  memory.end('reading the audio');
  assert.equal((await stat(path)).size, job.result.sizeBytes);
  const captions = path.replace('mp3', 'vtt');
  await writeFile(captions, (await gateway.call(new URL(job.links.captions).pathname)).bytes);
  return { path, parts, seconds: spoken, startOf: await partStarts(captions, parts) };

  async function startWatched(t: Test): Promise<Child> {
    const before = upstream.requests.length;
    const child = startChild(t, WORKER, workerEnv);
    await upstream.waitForRequests(before + 1);
    const memory = watchMemory(child.process.pid as number);
    return {
      ...child,
      stop: (signal) => {
        memory.end('a worker');
        return child.stop(signal);
      },
    };
  }
}

/** The resident memory of a process, from now on. */
function watchMemory(pid: number) {
  const read = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
  const first = read();
  let most = first;
  const timer = setInterval(() => {
    most = Math.max(most, read());
  }, 200);
  return {
    end(what: string) {
      clearInterval(timer);
      console.error(
        `${what}: ${Math.round((most - first) / 2 ** 20)} MiB more than ${Math.round(first / 2 ** 20)} MiB`,
      );
      assert.ok(most - first <= MAX_MEMORY_BYTES, what);
    },
  };
}

const WORDS = {
  who: ['teacher', 'doctor', 'farmer', 'brother', 'sister', 'mother', 'father', 'captain', 'soldier', 'woman'],
  did: ['walked', 'talked', 'waited', 'worked', 'listened', 'traveled', 'returned', 'wandered'],
  where: ['garden', 'kitchen', 'river', 'station', 'mountain', 'hospital', 'village', 'market', 'forest', 'school'],
  when: ['morning', 'evening', 'winter', 'summer', 'afternoon', 'weekend'],
  like: ['old', 'young', 'happy', 'hungry', 'little', 'famous', 'beautiful', 'dangerous'],
};

/** Sentences of words that a recognizer knows, in paragraphs of six. */
function proseOf(characters: number): string {
  let [text, count] = ['', 0];
  const pick = (kind: keyof typeof WORDS) => WORDS[kind][Math.floor(Math.random() * WORDS[kind].length)] as string;
  while (text.length < characters) {
    text += `The ${pick('like')} ${pick('who')} ${pick('did')} to the ${pick('like')} ${pick('where')} in the ${pick('when')}.`;
    text += ++count % 6 === 0 ? '\n\n' : ' ';
  }
  return `${text.slice(0, characters - 1).trimEnd()}.`.padEnd(characters, '!');
}

/** Reads captions as ffmpeg does; tells where each part of the text begins. */
async function partStarts(captions: string, parts: readonly string[]): Promise<(part: number) => number> {
  const { stdout } = await run('ffprobe', ['-v', 'error', '-show_packets', '-of', 'json', captions], {
    maxBuffer: 2 ** 26,
  });
  const { packets } = JSON.parse(stdout) as { packets: { pts_time: string; duration_time: string }[] };
  const cues = readFileSync(captions, 'utf8').split('\n\n').slice(1);
  assert.equal(packets.length, cues.length);
  const starts = new Map<number, number>();
  let characters = 0;
  const lengthOf = (text: string) => text.replace(/\s/g, '').length;
  for (const [index, cue] of cues.entries()) {
    starts.set(characters, Number(packets[index]?.pts_time));
    characters += lengthOf(cue.slice(cue.indexOf('\n')));
  }
  return (part) => {
    const start = starts.get(lengthOf(parts.slice(0, part).join('')));
    assert.ok(start !== undefined, `a cue begins with part ${part}`);
    return start;
  };
}

/** Decodes the whole; tells the silent gaps in it, and when a tone begins that is another one. */
async function heardWhole({ path, seconds }: Book): Promise<{ gaps: number[]; changes: number[] }> {
  const ffmpeg = spawn('ffmpeg', [
    ...['-nostdin', '-nostats', '-loglevel', 'level+info', '-i', path, '-af', 'silencedetect=d=0.02'],
    ...['-f', 's16le', '-ac', '1', '-ar', String(RATE_HZ), '-'],
  ]);
  let said = '';
  ffmpeg.stderr.on('data', (chunk) => (said += chunk));
  const windowSamples = RATE_HZ / 50;
  const changes: number[] = [];
  let [samples, rises, loudest, before, last, tone] = [0, 0, 0, 0, 0, 0];
  let odd: Buffer = Buffer.alloc(0);
  for await (const chunk of ffmpeg.stdout) {
    const bytes = Buffer.concat([odd, chunk]);
    odd = bytes.subarray(bytes.length & ~1);
    for (let at = 0; at + 1 < bytes.length; at += 2) {
      const sample = bytes.readInt16LE(at);
      if (before < 0 && sample >= 0) rises++;
      loudest = Math.max(loudest, sample);
      before = sample;
      if (++samples % windowSamples > 0) continue;
      const heard = loudest < 3_000 ? 0 : rises > 13 ? 880 : 440;
      // A window may have the end of one tone and the beginning of the other.
      if (heard > 0 && heard === last && heard !== tone) {
        if (tone > 0) changes.push((samples - 2 * windowSamples) / RATE_HZ);
        tone = heard;
      }
      last = heard;
      [rises, loudest] = [0, 0];
    }
  }
  if (ffmpeg.exitCode === null) await once(ffmpeg, 'exit');
  assert.deepEqual([ffmpeg.exitCode, said.match(/.*\[(warning|error|fatal)\].*/g)], [0, null]);
  const played = samples / RATE_HZ;
  console.error(`${played} s are played of ${seconds} s`);
  assert.ok(Math.abs(played - seconds) < seconds / 100);
  const inside = [...said.matchAll(/silence_end: (\S+) \| silence_duration: (\S+)/g)].filter(
    ([, end, duration]) => Number(end) - Number(duration) > 0 && Number(end) < played - 0.01,
  );
  return { gaps: inside.map(([, , duration]) => Number(duration)), changes };
}

/** At least half of a sentence's words are heard from there on. */
async function isHeard(path: string, from: number, sentence: string): Promise<boolean> {
  const { stdout } = await run(
    'ffmpeg',
    ['-v', 'error', '-ss', String(from), '-t', String(SENTENCE_SECONDS), '-i', path, '-f', 'wav', '-'],
    { encoding: 'buffer', maxBuffer: 2 ** 26 },
  );
  const heard = await hear(stdout);
  const words = sentence.match(/\w+/g)?.filter((word) => !/^(the|to|in)$/i.test(word)) ?? [];
  console.error(`${sentence} -> ${heard.join(' ')}`);
  return words.filter((word) => heard.includes(word)).length >= words.length / 2;
}
