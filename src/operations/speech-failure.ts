import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import type { SpeechFailed } from '../payments/speak.ts';
import type { SpeechError } from '../speech/provider.ts';

/** The rules of the text that only a provider can tell. */
const TEXT_RULES = { TEXT_TOO_LONG: 'duration', INVALID_REQUEST: 'script' } as const;

/**
 * The answer to speech that was not taken on, or has failed. Whatever was held for it is given back.
 * @param flow that pays for it
 */
export function speechFailed(
  flow: { readonly untaken: string },
  { error, hold }: SpeechFailed<unknown>,
  context: OperationContext,
) {
  if (hold) {
    context.note({ chargedMicroUsd: 0n });
    context.log.warn({ err: error }, 'synthesis failed');
  }
  return speechFailure(error, flow.untaken);
}

/** A failed synthesis as the caller sees it. @param money what became of the payment by then */
export function speechFailure({ code, message, transient, retryAfterSeconds, reason }: SpeechError, money: string) {
  if (code === 'TEXT_TOO_LONG' || code === 'INVALID_REQUEST') {
    return failure(code, `${message} ${money}`, { field: 'text', rule: TEXT_RULES[code] });
  }
  const answer = failure(code, `${message} ${money}`, { transient, ...(reason !== undefined && { reason }) });
  if (answer.status !== 503 || retryAfterSeconds === undefined) return answer;
  return { ...answer, headers: { 'retry-after': retryAfterSeconds } };
}

export const providerMissing = () =>
  failure('TTS_PROVIDER_NOT_CONFIGURED', 'No speech provider is set up here.', { setting: 'SPEECH_BASE_URL' });
