import { SpeechError, type SpeechProvider, type Utterance } from '../speech/provider.ts';

/** More audio than 4096 characters can be. */
const MAX_AUDIO_BYTES = 64 * 1024 * 1024;

/** A payment that is captured with the whole audio at hand; exactly one of capture and void ends it. */
export interface BufferedHold<Receipt> {
  capture(audio: Buffer): Promise<Receipt>;
  void(): Promise<void>;
}

/**
 * Speaks what a hold pays for, whole, and captures it then (R21, R55): whether or not the caller still listens, and
 * nothing is delivered before. Only MPEG audio counts (R56).
 * @throws SpeechError when the provider fails; the hold is voided by then
 */
export async function speakBuffered<Receipt>(
  hold: BufferedHold<Receipt>,
  provider: SpeechProvider,
  utterance: Utterance,
  timeoutMs: number,
): Promise<{ audio: Buffer; receipt: Receipt }> {
  let audio: Buffer;
  try {
    audio = await synthesizeWhole(provider, utterance, timeoutMs);
  } catch (error) {
    await hold.void();
    throw error;
  }
  return { audio, receipt: await hold.capture(audio) };
}

async function synthesizeWhole(provider: SpeechProvider, utterance: Utterance, timeoutMs: number): Promise<Buffer> {
  const speech = await provider.synthesize(utterance, AbortSignal.timeout(timeoutMs));
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of speech.audio) {
    if (speech.mimeType !== 'audio/mpeg') {
      throw new SpeechError('TTS_UPSTREAM_ERROR', 'The speech provider did not answer with MPEG audio.', false);
    }
    size += chunk.length;
    if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, size);
}
