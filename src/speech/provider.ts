/** What a provider is asked to speak. The text is trimmed and validated, and never reaches a log (R40). */
export interface Utterance {
  readonly text: string;
  /** The provider's own name of the model, from the catalog. */
  readonly model: string;
  /** The provider's own name of the voice, from the catalog. */
  readonly voice: string;
  /** 0.5 to 2, where 1 is the voice's natural pace. */
  readonly speed: number;
}

/** Longest audio that is accepted: at 128 kbit/s more than an hour, far beyond the longest text. */
export const MAX_AUDIO_BYTES = 64 * 1024 * 1024;

export type AudioType = 'audio/mpeg' | 'audio/wav';

/** Audio that is being produced. Its first bytes have been checked; iterating throws SpeechError when the provider breaks off. */
export interface Speech {
  readonly mimeType: AudioType;
  readonly audio: AsyncIterable<Uint8Array>;
}

export interface Synthesizer {
  /**
   * Resolves once the first bytes are known to be audio, rejects with SpeechError.
   * The signal is the deadline of the whole synthesis: when it fires, all work for it stops.
   */
  synthesize(utterance: Utterance, signal: AbortSignal): Promise<Speech>;
}

/** One synthesis that was taken on before its payment. Its utterance is the one that was asked for. */
export interface Place extends Synthesizer {
  /** Gives the place back, and what is kept for it. A synthesis that has begun goes on. */
  release(): void;
}

export interface SpeechProvider extends Synthesizer {
  /** Why this utterance would never be spoken to its end; undefined when it would. */
  refuse?(utterance: Utterance): SpeechError | undefined;
  /** Takes one synthesis on, or says why it could not begin soon. A provider without this takes any number. */
  reserve?(utterance: Utterance): Place | SpeechError;
  close(): Promise<void>;
}

export type SpeechErrorCode =
  | 'TTS_UPSTREAM_ERROR'
  | 'TTS_UNAVAILABLE'
  | 'TTS_PROVIDER_NOT_CONFIGURED'
  /** Too long to be heard, though not in characters. */
  | 'TEXT_TOO_LONG'
  /** In a script that the voice can't read. */
  | 'INVALID_REQUEST';

/**
 * A synthesis that did not succeed (R9). The message is safe to show to a caller: it holds neither the text nor
 * anything the provider wrote.
 */
export class SpeechError extends Error {
  constructor(
    readonly code: SpeechErrorCode,
    message: string,
    /** True when the same utterance may succeed later: the provider was unreachable, slow, overloaded or broken. */
    readonly transient: boolean,
    /** Seconds that the provider asked to wait, from its Retry-After. */
    readonly retryAfterSeconds?: number,
    /** For programs, where the code does not say it. */
    readonly reason?: string,
  ) {
    super(message);
    this.name = 'SpeechError';
  }
}
