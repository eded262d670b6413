import type { OperationContext } from '../http/operation-context.ts';
import { OVERLOADED, retryAfterSeconds } from '../http/overload-answer.ts';
import { failure } from '../http/structured-error.ts';
import type { KnownPauses } from '../operators/known-pauses.ts';
import type { PausableFlow } from '../operators/pauses.ts';
import { SpeechError } from '../speech/provider.ts';

/** Tells what operators have paused. */
export type Pauses = Pick<KnownPauses, 'has'>;

/** When a caller may try again: nobody knows how long a pause takes. */
export const PAUSE_RETRY_SECONDS = 30;

const PAUSED: Readonly<Record<PausableFlow, string>> = {
  card: 'Speech that is paid by card credit is paused by the operator; try again later.',
  jobs: 'Asynchronous speech is paused by the operator; try again later.',
  'top-up': 'Buying credit is paused by the operator. Nothing was charged; try again later.',
  direct: 'Direct payment in USDC is paused by the operator; try again later.',
  prepaid: 'Payment from prepaid balances is paused by the operator; try again later.',
  deposit: 'Deposits are paused by the operator. Nothing was settled; try again later.',
};

/** Why no speech is sold by this flow now; undefined while it is open. */
export const pausedSpeech = (pauses: Pauses, flow: PausableFlow): SpeechError | undefined =>
  pauses.has(flow)
    ? new SpeechError('TTS_UNAVAILABLE', PAUSED[flow], true, PAUSE_RETRY_SECONDS, 'utterance', 'paused')
    : undefined;

/** Likewise, or why nothing new is begun for this request. */
export const closedSpeech = (
  pauses: Pauses,
  flow: PausableFlow,
  { isOverloaded }: Pick<OperationContext, 'isOverloaded'>,
): SpeechError | undefined =>
  pausedSpeech(pauses, flow) ??
  (isOverloaded
    ? new SpeechError('TTS_UNAVAILABLE', OVERLOADED, true, retryAfterSeconds(), 'utterance', 'overloaded')
    : undefined);

/** The 503 of a flow that sells no speech and is paused. */
export const pausedAnswer = (flow: 'top-up' | 'deposit') => ({
  ...failure('CONFIG_ERROR', PAUSED[flow], { reason: 'paused', retryAfterSeconds: PAUSE_RETRY_SECONDS }),
  headers: { 'retry-after': PAUSE_RETRY_SECONDS },
});
