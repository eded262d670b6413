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
