import { type AudioType, MAX_AUDIO_BYTES, SpeechError, type Synthesizer, type Utterance } from './provider.ts';

/** Speaks to the end, and gives the audio as a whole. Rejects with SpeechError; the signal is the deadline. */
export async function collectSpeech(
  synthesizer: Synthesizer,
  utterance: Utterance,
  signal: AbortSignal,
): Promise<{ readonly mimeType: AudioType; readonly audio: Buffer }> {
  const speech = await synthesizer.synthesize(utterance, signal);
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of speech.audio) {
    size += chunk.length;
    if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
    chunks.push(chunk);
  }
  return { mimeType: speech.mimeType, audio: Buffer.concat(chunks, size) };
}
