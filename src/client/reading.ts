import type { Told } from './api.ts';
import { type ServiceError, SpeechgateError, UnreachableError } from './errors.ts';
import { faultOf, isPassing, serviceError } from './service-error.ts';
import { type Shape, shaped } from './shape.ts';
import { delayMs, pause, withDeadline } from './waiting.ts';

/** How often something that costs nothing is asked for, before its absence is told as an error. */
const ATTEMPTS = 3;
/** Milliseconds in which such an answer has to be there. */
const DEADLINE_MS = 15_000;
/** Milliseconds that are waited at most when the service asks for patience. */
const MOST_DELAY_MS = 10_000;

/**
 * Asks for something that costs nothing, and asks again when the service is out of reach or too busy.
 * @param shape what of the answer is used
 * @throws UntrustedError when the answer has another shape
 * @throws ServiceError what the service answered instead
 * @throws UnreachableError when it did not answer
 */
export async function read<Data>(
  signal: AbortSignal | undefined,
  shape: Shape,
  ask: (signal: AbortSignal) => Promise<Told<Data>>,
): Promise<Data> {
  for (let attempt = 1; ; attempt += 1) {
    const answer = await askOnce(signal, ask);
    if (!(answer instanceof Error)) return shaped(answer.data, shape);
    const mayPass = answer instanceof UnreachableError || isPassing(answer);
    const delay = delayMs(attempt, answer instanceof UnreachableError ? null : answer.retryAfterSeconds);
    if (!mayPass || attempt === ATTEMPTS || delay > MOST_DELAY_MS) throw answer;
    await pause(delay, signal);
  }
}

async function askOnce<Data>(
  signal: AbortSignal | undefined,
  ask: (signal: AbortSignal) => Promise<Told<Data>>,
): Promise<{ readonly data: Data } | ServiceError | UnreachableError> {
  try {
    const { data, error, response } = await withDeadline(DEADLINE_MS, signal, ask);
    return data === undefined ? serviceError(faultOf(response, error)) : { data };
  } catch (cause) {
    signal?.throwIfAborted();
    if (cause instanceof SpeechgateError) throw cause;
    return new UnreachableError('The service could not be reached.', { cause });
  }
}
