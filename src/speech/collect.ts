import { type AudioType, SpeechError, type SpeechProvider, type Utterance } from './provider.ts';

/** More audio than any text within the models' caps can be. */
export const MAX_AUDIO_BYTES = 64 * 1024 * 1024;

/** Speaks to the end, and gives the audio as a whole. Rejects with SpeechError; the signal is the deadline. */
export async function collectSpeech(
  provider: SpeechProvider,
  utterance: Utterance,
  signal: AbortSignal,
): Promise<{ readonly mimeType: AudioType; readonly audio: Buffer }> {
  const speech = await provider.synthesize(utterance, signal);
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of speech.audio) {
    size += chunk.length;
    if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
    chunks.push(chunk);
  }
  return { mimeType: speech.mimeType, audio: Buffer.concat(chunks, size) };
}
