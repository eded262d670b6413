import { collectSpeech } from '../speech/collect.ts';
import { SpeechError, type Synthesizer, type Utterance } from '../speech/provider.ts';

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
  synthesizer: Synthesizer,
  utterance: Utterance,
  timeoutMs: number,
): Promise<{ audio: Buffer; receipt: Receipt }> {
  let audio: Buffer;
  try {
    audio = await collectMpeg(synthesizer, utterance, timeoutMs);
  } catch (error) {
    await hold.void();
    throw error;
  }
  return { audio, receipt: await hold.capture(audio) };
}

async function collectMpeg(synthesizer: Synthesizer, utterance: Utterance, timeoutMs: number): Promise<Buffer> {
  const { mimeType, audio } = await collectSpeech(synthesizer, utterance, AbortSignal.timeout(timeoutMs));
  if (mimeType === 'audio/mpeg') return audio;
  throw new SpeechError('TTS_UPSTREAM_ERROR', 'The speech provider did not answer with MPEG audio.', false);
}
