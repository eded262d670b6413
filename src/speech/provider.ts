/** What a provider is asked to speak. The text is trimmed and validated, and never reaches a log (R40). */
export interface Utterance {
  readonly text: string;
  /** The provider's own name of the model, as `upstreamModel` in the catalog; an upstream is told its own one. */
  readonly model: string;
  /** The provider's own name of the voice, likewise. */
  readonly voice: string;
  /** 0.5 to 2, where 1 is the voice's natural pace. */
  readonly speed: number;
  /** Id of the model in the catalog; jobs of earlier releases know none. */
  readonly modelId?: string | null;
}

/** Longest audio that is accepted: at 128 kbit/s more than an hour, far beyond the longest text. */
export const MAX_AUDIO_BYTES = 64 * 1024 * 1024;

export type AudioType = 'audio/mpeg' | 'audio/wav';

/** Audio that is being produced. Its first bytes have been checked; iterating throws SpeechError when the provider breaks off. */
export interface Speech {
  readonly mimeType: AudioType;
  readonly audio: AsyncIterable<Uint8Array>;
  /** Who speaks; undefined of a provider that is asked directly. */
  readonly upstream?: SpeakingUpstream;
  /**
   * Has the next upstream speak the same utterance from its beginning, for audio that broke off or can't be used while
   * nobody has heard of it. Undefined where no other one is left.
   * @throws the error that it was given, when the deadline has passed, or that of the others
   */
  readonly instead?: (error: SpeechError) => Promise<Speech>;
}

export interface SpeakingUpstream {
  readonly name: string;
  /** What a character costs the operator there, in 10^-12 USD; null where the catalog does not tell. */
  readonly costPicoUsd: bigint | null;
}

export interface Synthesizer {
  /**
   * Resolves once the first bytes are known to be audio, rejects with SpeechError.
   * The signal is the deadline of the whole synthesis: when it fires, all work for it stops.
   * @param firstByteMs longest wait for the first audio, where that is less than the provider's own and it has one
   */
  synthesize(utterance: Utterance, signal: AbortSignal, firstByteMs?: number): Promise<Speech>;
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
  /** Whether it would answer now, asked at no cost. A provider without this is always there. */
  probe?(signal: AbortSignal): Promise<boolean>;
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
 * What a failure tells of its upstream: `utterance` nothing, since it would speak another one; `away` that nobody is
 * there at all; `credential` that it refuses our key; `upstream` that something else is wrong with it.
 */
export type SpeechFault = 'utterance' | 'away' | 'credential' | 'upstream';

const OF_UTTERANCE: readonly SpeechErrorCode[] = ['TEXT_TOO_LONG', 'INVALID_REQUEST'];

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
    readonly fault: SpeechFault = OF_UTTERANCE.includes(code) ? 'utterance' : 'upstream',
    /** For programs, where the code does not say it. */
    readonly reason?: string,
  ) {
    super(message);
    this.name = 'SpeechError';
  }
}
