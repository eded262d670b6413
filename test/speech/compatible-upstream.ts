import assert from 'node:assert/strict';
import type { Test } from 'tap';
import { openAiCompatible } from '../../src/speech/openai-compatible.ts';
import { type Speech, SpeechError } from '../../src/speech/provider.ts';
import type { Mode } from '../support/stub-upstream.ts';
import * as stub from '../support/stub-upstream.ts';

export const UTTERANCE = { text: 'a canary sings', model: 'tts-1', voice: 'alloy', speed: 1.25 };
export const NEVER = new AbortController().signal;

export async function start(t: Test, mode?: Mode, options: { firstByteTimeoutMs?: number; apiKey?: string } = {}) {
  const upstream = await stub.startStubUpstream(mode ? { mode } : {});
  const provider = openAiCompatible({ baseUrl: upstream.url, firstByteTimeoutMs: 30_000, ...options });
  t.teardown(async () => {
    await upstream.close();
    await provider.close();
  });
  return { upstream, provider, speak: (signal = NEVER) => provider.synthesize(UTTERANCE, signal) };
}

/** A connection can be used again one turn of the event loop after its response. */
export const turn = () => new Promise((resolve) => setImmediate(resolve));

export async function read(speech: Speech): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of speech.audio) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export type Expected = { code: string; transient: boolean; retryAfterSeconds?: number | undefined };

export async function fails(promise: Promise<unknown>, expected: Expected): Promise<void> {
  await assert.rejects(promise, (error: unknown) => {
    assert.ok(error instanceof SpeechError, `${error}`);
    const { code, transient, retryAfterSeconds, message } = error;
    assert.deepEqual({ code, transient, retryAfterSeconds }, { retryAfterSeconds: undefined, ...expected });
    assert.doesNotMatch(message, /canary|127\.0\.0\.1|undici/i);
    return true;
  });
}

export const UPSTREAM_ERROR = { code: 'TTS_UPSTREAM_ERROR', transient: false };
export const BROKEN_OFF = { code: 'TTS_UPSTREAM_ERROR', transient: true };
export const UNAVAILABLE = { code: 'TTS_UNAVAILABLE', transient: true };
