import {
  type AudioType,
  MAX_AUDIO_BYTES,
  type Speech,
  SpeechError,
  type Synthesizer,
  type Utterance,
} from './provider.ts';

const NAMES: Readonly<Record<AudioType, string>> = { 'audio/mpeg': 'MPEG', 'audio/wav': 'WAV' };

/** Speech as a whole, and who spoke it. */
export interface CollectedSpeech extends Pick<Speech, 'mimeType' | 'upstream'> {
  readonly audio: Buffer;
}

/**
 * Speaks to the end, and gives the audio as a whole; what breaks off is spoken by the next upstream. Rejects with
 * SpeechError; the signal is the deadline.
 * @param only audio of this type is of use
 */
export function collectSpeech(
  synthesizer: Synthesizer,
  utterance: Utterance,
  signal: AbortSignal,
  only?: AudioType,
): Promise<CollectedSpeech> {
  return speakUntilTaken(synthesizer.synthesize(utterance, signal), (speech) => collect(speech, only));
}

/** Takes of the speech what `take` does, or where that fails for the speech's sake, of the next upstream's. */
export async function speakUntilTaken<Taken>(
  begun: Promise<Speech>,
  take: (speech: Speech) => Promise<Taken>,
): Promise<Taken> {
  let speech = await begun;
  for (;;) {
    try {
      return await take(speech);
    } catch (error) {
      if (!(error instanceof SpeechError) || !speech.instead) throw error;
      speech = await speech.instead(error);
    }
  }
}

const isOther = (wanted: AudioType) =>
  new SpeechError('TTS_UPSTREAM_ERROR', `The speech provider did not answer with ${NAMES[wanted]} audio.`, false);

async function collect(speech: Speech, only: AudioType | undefined): Promise<CollectedSpeech> {
  const { mimeType, upstream } = speech;
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of speech.audio) {
    if (only && mimeType !== only) throw isOther(only);
    size += chunk.length;
    if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
    chunks.push(chunk);
  }
  return { mimeType, audio: Buffer.concat(chunks, size), ...(upstream && { upstream }) };
}
