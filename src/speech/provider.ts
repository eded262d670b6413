/** What to synthesize. The text is trimmed and validated, and never reaches a log (R40). */
export interface Utterance {
  readonly text: string;
  /** `upstreamModel` of the catalog; an upstream may have its own name for it. */
  readonly model: string;
  readonly voice: string;
  readonly speed: number;
  /** Id of the model in the catalog. */
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

/** What is wrong with audio. */
export type AudioFault = 'truncated' | 'no audio' | 'damaged' | 'several files';

const RETRY_AFTER_MIN_SECONDS = 1;
const RETRY_AFTER_MAX_SECONDS = 3600;

/** Seconds of a Retry-After header (RFC 9110, 10.2.3), from a second to an hour; undefined if malformed. */
function retryAfterSeconds(value: string | undefined, now: number): number | undefined {
  if (value === undefined) return undefined;
  const isDate = /^[A-Z][a-z]+,? .* GMT$/.test(value);
  const seconds = /^\d+(\.\d+)?$/.test(value)
    ? Math.ceil(Number(value))
    : isDate
      ? Math.ceil((Date.parse(value) - now) / 1000)
      : Number.NaN;
  if (Number.isNaN(seconds)) return undefined;
  return Math.min(Math.max(seconds, RETRY_AFTER_MIN_SECONDS), RETRY_AFTER_MAX_SECONDS);
}

const FAULTS: Readonly<Record<number, SpeechFault>> = {
  400: 'utterance',
  401: 'credential',
  403: 'credential',
  413: 'utterance',
  422: 'utterance',
};

/** 502, or 503 where the upstream may work again soon (R9). */
export function statusError(status: number, retryAfter: string | undefined): SpeechError {
  if (status === 429 || status === 503) {
    const message = `The speech provider accepts no request at present (status ${status}).`;
    const seconds = retryAfterSeconds(retryAfter, Date.now());
    return new SpeechError('TTS_UNAVAILABLE', message, true, seconds).because(`status_${status}`);
  }
  const fault = FAULTS[status] ?? 'upstream';
  const message = `The speech provider answered with status ${status}.`;
  const failure = `status_${Math.floor(status / 100)}xx`;
  return new SpeechError('TTS_UPSTREAM_ERROR', message, status >= 500, undefined, fault).because(failure);
}

export const brokenOff = (cause?: unknown) =>
  new SpeechError(
    'TTS_UPSTREAM_ERROR',
    'The response of the speech provider ended before the audio was complete.',
    true,
  ).because('broken_off', cause);

export const notAudio = () =>
  new SpeechError('TTS_UPSTREAM_ERROR', 'The speech provider did not answer with audio.', false).because('no_audio');

export function audioError(fault: AudioFault): SpeechError {
  if (fault === 'no audio') return notAudio();
  return new SpeechError('TTS_UPSTREAM_ERROR', UNUSABLE[fault], false).because(fault.replaceAll(' ', '_'));
}

const UNUSABLE = {
  truncated: 'The speech provider answered with audio that is cut off.',
  damaged: 'The speech provider answered with damaged audio.',
  'several files': 'The speech provider answered with audio of several files or formats that cannot be joined.',
} as const;

export const wrongLength = () =>
  new SpeechError(
    'TTS_UPSTREAM_ERROR',
    'The speech provider answered with audio that is too short or too long for the text.',
    true,
  ).because('wrong_length');

export const silence = () =>
  new SpeechError('TTS_UPSTREAM_ERROR', 'The speech provider answered with silence.', true).because('silence');

export const tooLarge = () =>
  new SpeechError(
    'TTS_UPSTREAM_ERROR',
    'The speech provider answered with more audio than this service accepts.',
    false,
  ).because('too_large');

export const firstByteTimeout = () =>
  new SpeechError('TTS_UNAVAILABLE', 'The speech provider sent no audio in time.', true).because('late_start');

export const deadlineExceeded = () =>
  new SpeechError('TTS_UNAVAILABLE', 'The synthesis did not finish in time.', true).because('timeout');
