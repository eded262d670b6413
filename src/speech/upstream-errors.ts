import type { AudioFault } from './audio-reader.ts';
import { SpeechError, type SpeechFault } from './provider.ts';

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
    const message = `The speech provider is overloaded (status ${status}).`;
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
    'The speech provider closed the connection before the audio was complete.',
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
  'several files': 'The speech provider answered with several audio files that cannot be joined.',
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
  new SpeechError('TTS_UNAVAILABLE', 'The speech provider did not start to answer in time.', true).because(
    'late_start',
  );

export const deadlineExceeded = () =>
  new SpeechError('TTS_UNAVAILABLE', 'The speech provider did not finish in time.', true).because('timeout');
