import { setImmediate as endOfTurn } from 'node:timers/promises';
import { asBuffer } from './audio-reader.ts';
import {
  type AudioType,
  MAX_AUDIO_BYTES,
  type Speech,
  SpeechError,
  type SpeechProvider,
  type Utterance,
} from './provider.ts';
import type { Share } from './synthesis-permits.ts';
import { wholeAudio } from './whole-audio.ts';

const NAMES: Readonly<Record<AudioType, string>> = { 'audio/mpeg': 'MPEG', 'audio/wav': 'WAV' };

export interface CollectedSpeech extends Pick<Speech, 'mimeType' | 'upstream' | 'words'> {
  readonly audio: Buffer;
}

/** Returns the whole audio, with failover. @param share counts the audio as it arrives @throws SpeechError */
export function collectSpeech(
  provider: SpeechProvider,
  utterance: Utterance,
  signal: AbortSignal,
  only?: AudioType,
  share?: Share,
): Promise<CollectedSpeech> {
  return synthesizeWithFailover(provider.synthesize(utterance, signal), (speech) => collect(speech, only, share));
}

/** Applies `take` to the speech; if that throws SpeechError, to the next upstream's speech. */
export async function synthesizeWithFailover<Taken>(
  begun: Promise<Speech>,
  take: (speech: Speech) => Promise<Taken>,
): Promise<Taken> {
  let speech = await begun;
  for (;;) {
    try {
      return await take(speech);
    } catch (error) {
      if (!(error instanceof SpeechError) || !speech.failover) throw error;
      speech = await speech.failover(error);
    }
  }
}

const isOther = (wanted: AudioType) =>
  new SpeechError('TTS_UPSTREAM_ERROR', `The speech provider did not answer with ${NAMES[wanted]} audio.`, false);

async function collect(
  speech: Speech,
  only: AudioType | undefined,
  share: Share | undefined,
): Promise<CollectedSpeech> {
  const { mimeType, upstream, words } = speech;
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of speech.audio) {
      if (only && mimeType !== only) throw isOther(only);
      size += chunk.length;
      share?.add(chunk.length);
      if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
      chunks.push(chunk);
    }
  } catch (error) {
    share?.add(-size);
    throw error;
  }
  const audio = completed(speech, Buffer.concat(chunks, size));
  return { mimeType, audio, ...(upstream && { upstream }), ...(words && { words }) };
}

/** The audio of speech that has ended. */
export const completed = ({ mimeType, description }: Speech, audio: Buffer): Buffer =>
  asBuffer(wholeAudio(mimeType, audio, description?.()));

/** About what a connection takes in one write; more is not waited for. */
const MAX_BYTES = 64 * 1024;

export type Begun =
  | { readonly outcome: 'whole'; readonly audio: Buffer }
  | { readonly outcome: 'flowing'; readonly audio: AsyncIterable<Uint8Array> };

/** Returns the whole audio if it arrives in this turn of the event loop: short audio then needs no stream (R55). */
export async function readIfComplete(audio: AsyncIterable<Uint8Array>): Promise<Begun> {
  const source = audio[Symbol.asyncIterator]();
  const turn = endOfTurn();
  const chunks: Uint8Array[] = [];
  let size = 0;
  while (size <= MAX_BYTES) {
    const step = source.next();
    const taken = await Promise.race([step, turn]);
    if (!taken) return { outcome: 'flowing', audio: flow(chunks, source, step) };
    if (taken.done) return { outcome: 'whole', audio: Buffer.concat(chunks, size) };
    chunks.push(taken.value);
    size += taken.value.length;
  }
  return { outcome: 'flowing', audio: flow(chunks, source) };
}

async function* flow(
  taken: readonly Uint8Array[],
  source: AsyncIterator<Uint8Array>,
  next?: Promise<IteratorResult<Uint8Array>>,
): AsyncIterable<Uint8Array> {
  try {
    yield* taken;
    for (let step = await (next ?? source.next()); !step.done; step = await source.next()) yield step.value;
  } finally {
    await source.return?.();
  }
}
