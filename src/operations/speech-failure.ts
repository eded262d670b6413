import { failure } from '../http/errors.ts';
import type { SpeechError } from '../speech/provider.ts';

/** A failed synthesis as the caller sees it. @param money what became of the payment by then */
export function speechFailure({ code, message, transient, retryAfterSeconds }: SpeechError, money: string) {
  if (code === 'TEXT_TOO_LONG') return failure(code, `${message} ${money}`, { field: 'text', rule: 'duration' });
  const answer = failure(code, `${message} ${money}`, { transient });
  if (answer.status !== 503 || retryAfterSeconds === undefined) return answer;
  return { ...answer, headers: { 'retry-after': retryAfterSeconds } };
}
