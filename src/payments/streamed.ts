import { Readable } from 'node:stream';
import {
  type AudioType,
  MAX_AUDIO_BYTES,
  SpeechError,
  type SpeechProvider,
  type Utterance,
} from '../speech/provider.ts';
import { testPoint } from '../test-point.ts';
import type { PaymentHold } from './strategy.ts';

export interface StreamedSpeech {
  readonly mimeType: AudioType;
  readonly audio: Readable;
  /** Settles when the hold has ended, whether or not the caller still listens. */
  readonly ended: Promise<void>;
}

/**
 * Speaks what a hold pays for, and hands the audio on as it is produced (R55):
 *
 *     provider fails before audio  -> void, throw SpeechError
 *     provider breaks off          -> void, break the stream off
 *     caller leaves                -> read on to the end, capture
 *     last byte                    -> capture, and only then the caller gets it
 *     capture finds the hold lost  -> break the stream off
 *
 * The caller's reading speed never slows the provider: what is not read yet waits in memory.
 */
export async function streamSpeech(
  hold: PaymentHold,
  provider: SpeechProvider,
  utterance: Utterance,
  timeoutMs: number,
): Promise<StreamedSpeech> {
  const deadline = AbortSignal.timeout(timeoutMs);
  testPoint('speech held');
  let speech: Awaited<ReturnType<SpeechProvider['synthesize']>>;
  try {
    speech = await provider.synthesize(utterance, deadline);
  } catch (error) {
    await hold.void();
    throw error;
  }
  const audio = new Readable({ read() {} });
  // Fastify destroys the stream when the caller leaves; nobody may be listening when it breaks off later.
  audio.on('error', () => {});
  return { mimeType: speech.mimeType, audio, ended: forward(speech.audio, audio, hold) };
}

async function forward(source: AsyncIterable<Uint8Array>, target: Readable, hold: PaymentHold): Promise<void> {
  let last: Uint8Array;
  try {
    last = await forwardAllButLastByte(source, target);
  } catch (error) {
    await hold.void();
    target.destroy(error as Error);
    return;
  }
  testPoint('speech spoken');
  try {
    if (!(await hold.capture())) throw new SpeechError('TTS_UNAVAILABLE', 'The hold was lost.', true);
    testPoint('speech captured');
    if (!target.destroyed) {
      target.push(last);
      target.push(null);
    }
  } catch (error) {
    target.destroy(error as Error);
  }
}

async function forwardAllButLastByte(source: AsyncIterable<Uint8Array>, target: Readable): Promise<Uint8Array> {
  let held: Uint8Array = new Uint8Array();
  let size = 0;
  for await (const chunk of source) {
    if (chunk.length === 0) continue;
    size += chunk.length;
    if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
    const last = chunk.length - 1;
    if (!target.destroyed) {
      if (held.length > 0) target.push(held);
      if (last > 0) target.push(chunk.subarray(0, last));
    }
    held = chunk.subarray(last);
  }
  return held;
}
