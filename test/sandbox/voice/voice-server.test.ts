import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import OpenAI from 'openai';
import { type Test, t, test } from 'tap';
import { startVoiceServer } from '../../../src/sandbox/voice/voice-server.ts';
import { startChild } from '../../support/child.ts';
import { readMp3 } from './mp3-frames.ts';

const CHARACTERS = 4096;
const fill = (pattern: string): string => pattern.repeat(Math.ceil(CHARACTERS / pattern.length)).slice(0, CHARACTERS);

/** Texts that the voice can't read, as it knows English only. */
const FOREIGN_TEXTS: Readonly<Record<string, string>> = {
  Chinese: fill('春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。'),
  Japanese: fill('こんにちは世界。私は学生です。'),
  Hebrew: 'בוקר טוב',
};

const HELLO = { model: 'tts-1', voice: 'onyx', input: 'Hello world.' };
const LONG = { ...HELLO, input: 'The birch canoe slid on the smooth planks. '.repeat(40) };

async function startServer(
  t: Pick<Test, 'teardown'>,
  options: { threads: number; maxWaitMs?: number } = { threads: 1 },
) {
  const { baseUrl, close } = await startVoiceServer({ port: 0, ...options });
  t.teardown(close);
  const post = (body: unknown) =>
    fetch(`${baseUrl}/audio/speech`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  return { baseUrl, close, post };
}

const { baseUrl, post } = await startServer(t);

test("OpenAI's client gets the speech that it requests", async (t) => {
  const openai = new OpenAI({ baseURL: baseUrl, apiKey: 'anything', maxRetries: 0 });
  const input = 'the quick brown fox jumps over the lazy dog';
  const response = await openai.audio.speech.create({ model: 'tts-1', voice: 'alloy', input, speed: 0.9 });
  t.equal(response.headers.get('content-type'), 'audio/mpeg');
  const { seconds } = readMp3(new Uint8Array(await response.arrayBuffer()));
  t.ok(seconds > 2 && seconds < 6, `${seconds} s`);
  const ids = (await openai.models.list()).data.map(({ id }) => id);
  t.strictSame(ids, ['tts-1', 'tts-1-hd']);
});

test("an invalid request is 400 in OpenAI's format and names the field", async (t) => {
  const cases: [unknown, string | null][] = [
    ...Object.values(FOREIGN_TEXTS).map((input): [unknown, string] => [{ ...HELLO, input }, 'input']),
    [{ ...HELLO, input: '' }, 'input'],
    [{ ...HELLO, input: 'a'.repeat(4097) }, 'input'],
    [{ model: 'tts-1', voice: 'onyx' }, 'input'],
    [{ ...HELLO, input: 7 }, 'input'],
    [{ ...HELLO, speed: 2.5 }, 'speed'],
    [{ ...HELLO, response_format: 'wav' }, 'response_format'],
    ['{', null],
  ];
  for (const [body, param] of cases) {
    const response = await post(body);
    t.equal(response.status, 400);
    const { error } = (await response.json()) as { error: Record<string, unknown> };
    t.strictSame([error.type, error.param, error.code], ['invalid_request_error', param, null]);
    t.equal(typeof error.message, 'string');
  }
  t.equal((await post({ ...HELLO, input: 'a'.repeat(70_000) })).status, 413);
  for (const input of ['Ñandú café', '5 µm ± 2 °C', '😂 #1']) t.equal((await post({ ...HELLO, input })).status, 200);
});

test('a text that gets no thread in time is 503 with Retry-After', async (t) => {
  const busy = await startServer(t, { threads: 1, maxWaitMs: 100 });
  const speaking = await busy.post(LONG);
  t.equal(speaking.status, 200);
  const refused = await busy.post(HELLO);
  t.equal(refused.status, 503);
  t.ok(Number(refused.headers.get('retry-after')) > 0);
  readMp3(new Uint8Array(await speaking.arrayBuffer()));
});

test('a client that disconnects frees its thread', async () => {
  const headers = { 'content-type': 'application/json' };
  const call = request(`${baseUrl}/audio/speech`, { method: 'POST', headers }).end(JSON.stringify(LONG));
  call.on('error', () => {});
  await once(call, 'response');
  call.destroy();
  readMp3(new Uint8Array(await (await post(HELLO)).arrayBuffer()));
});

test('speechgate voice prints its URL, and SIGTERM finishes running speech', async (t) => {
  const command = startChild(t, 'src/speechgate.ts', {}, ['voice']);
  await command.printed(/The voice server listens on \S+/);
  const [, url] = / listens on (http:\/\/127\.0\.0\.1:\d+\/v1)/.exec(command.output()) ?? assert.fail();
  const response = await fetch(`${url}/audio/speech`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(LONG),
  });
  const stopped = command.stop('SIGTERM');
  readMp3(new Uint8Array(await response.arrayBuffer()));
  t.equal(await stopped, 0, command.output());
});
