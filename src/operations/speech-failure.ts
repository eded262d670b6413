import { failure } from '../http/structured-error.ts';
import type { SpeechError } from '../speech/provider.ts';

/** The rules of the text that only a provider can tell. */
const TEXT_RULES = { TEXT_TOO_LONG: 'duration', INVALID_REQUEST: 'script' } as const;

/** A failed synthesis as the caller sees it. @param money what became of the payment by then */
export function speechFailure({ code, message, transient, retryAfterSeconds }: SpeechError, money: string) {
  if (code === 'TEXT_TOO_LONG' || code === 'INVALID_REQUEST') {
    return failure(code, `${message} ${money}`, { field: 'text', rule: TEXT_RULES[code] });
  }
  const answer = failure(code, `${message} ${money}`, { transient });
  if (answer.status !== 503 || retryAfterSeconds === undefined) return answer;
  return { ...answer, headers: { 'retry-after': retryAfterSeconds } };
}

export const providerMissing = () =>
  failure('TTS_PROVIDER_NOT_CONFIGURED', 'No speech provider is set up here.', { setting: 'SPEECH_BASE_URL' });
