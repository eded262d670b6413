import { asBuffer } from './audio-reader.ts';
import type { Share } from './synthesis-permits.ts';
import { wholeAudio } from './whole-audio.ts';

/** What to synthesize. The text is trimmed and validated, and never reaches a log (R40). */
export interface Utterance {
  readonly text: string;
  /** `upstreamModel` of the catalog; an upstream may have its own name for it. */
  readonly model: string;
  readonly voice: string;
  readonly speed: number;
  /** Id of the model in the catalog; jobs of earlier releases have none. */
  readonly modelId?: string | null;
  /** Of the request, for the log. */
  readonly traceId?: string;
  /** Its beginning is heard while the rest is spoken. */
  readonly isStreamed?: boolean;
  /** It is wanted when each word is spoken, of an upstream that tells. */
  readonly isCaptioned?: boolean;
}

/** As its upstream wrote it, in seconds from the beginning. */
export interface SpokenWord {
  readonly word: string;
  readonly start: number;
  readonly end: number;
}

/** More than an hour at 128 kbit/s, far beyond the longest text. */
export const MAX_AUDIO_BYTES = 64 * 1024 * 1024;

export type AudioType = 'audio/mpeg' | 'audio/wav';

/** Audio that is being produced, with checked first bytes. Iteration throws SpeechError if the provider breaks off. */
export interface Speech {
  readonly mimeType: AudioType;
  readonly audio: AsyncIterable<Uint8Array>;
  /** The frame by which an MP3 described itself, if `audio` lacks it; known when that has ended. */
  readonly description?: () => Uint8Array | undefined;
  readonly words?: readonly SpokenWord[];
  readonly upstream?: SpeakingUpstream;
  /** Synthesizes again with the next upstream, while nothing of the first has been sent. Undefined if none is left. */
  readonly failover?: (error: SpeechError) => Promise<Speech>;
}

export interface SpeakingUpstream {
  readonly name: string;
  readonly costPicoUsd: bigint | null;
}

export interface SpeechProvider {
  /** Resolves once the first bytes are known to be audio. @param signal deadline of the whole @throws SpeechError */
  synthesize(utterance: Utterance, signal: AbortSignal): Promise<Speech>;
}

export type SpeechErrorCode = 'TTS_UPSTREAM_ERROR' | 'TTS_UNAVAILABLE' | 'TTS_PROVIDER_NOT_CONFIGURED';

/**
 * What a failure says about its upstream. `utterance`: nothing, another utterance may succeed. `unreachable`: nothing
 * listens there. `credential`: it refuses our key. `upstream`: anything else.
 */
export type SpeechFault = 'utterance' | 'unreachable' | 'credential' | 'upstream';

/** A failed synthesis (R9). Callers may see the message, so it has neither the text nor the provider's words. */
export class SpeechError extends Error {
  constructor(
    readonly code: SpeechErrorCode,
    message: string,
    readonly transient: boolean,
    readonly retryAfterSeconds?: number,
    readonly fault: SpeechFault = 'upstream',
    readonly reason?: string,
  ) {
    super(message);
    this.name = 'SpeechError';
  }

  /** For operators: a word of a closed set. */
  failure = 'other';
  /** The upstream that failed. */
  upstream: string | undefined;

  because(failure: string, cause?: unknown): this {
    this.failure = failure;
    if (cause !== undefined) this.cause = cause;
    return this;
  }
}

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
