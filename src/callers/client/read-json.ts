import type { ApiResult } from './api.ts';
import { type ServiceError, SpeechgateError, UnreachableError, UntrustedError } from './errors.ts';
import { faultOf, isTransient, serviceError } from './service-error.ts';
import { delayMs, pause, withDeadline } from './waiting.ts';

const ATTEMPTS = 3;
const DEADLINE_MS = 15_000;
const MAX_DELAY_MS = 10_000;

/** Retries while the service is unavailable or overloaded. @throws UntrustedError, ServiceError, UnreachableError */
export async function readJson<Data>(
  signal: AbortSignal | undefined,
  shape: Shape,
  send: (signal: AbortSignal) => Promise<ApiResult<Data>>,
): Promise<Data> {
  for (let attempt = 1; ; attempt += 1) {
    const result = await sendOnce(signal, send);
    if (!(result instanceof Error)) return validated(result.data, shape);
    const canRetry = result instanceof UnreachableError || isTransient(result);
    const delay = delayMs(attempt, result instanceof UnreachableError ? null : result.retryAfterSeconds);
    if (!canRetry || attempt === ATTEMPTS || delay > MAX_DELAY_MS) throw result;
    await pause(delay, signal);
  }
}

async function sendOnce<Data>(
  signal: AbortSignal | undefined,
  send: (signal: AbortSignal) => Promise<ApiResult<Data>>,
): Promise<{ readonly data: Data } | ServiceError | UnreachableError> {
  try {
    const { data, error, response } = await withDeadline(DEADLINE_MS, signal, send);
    return data === undefined ? serviceError(faultOf(response, error)) : { data };
  } catch (cause) {
    signal?.throwIfAborted();
    if (cause instanceof SpeechgateError) throw cause;
    return new UnreachableError(
      'The service is unavailable. Check its address and retry later. You were not charged.',
      { cause },
    );
  }
}

/** The members that the client uses. `amount` is a whole number of micro-USD, 0 or more. */
export type Shape =
  | 'string'
  | 'number'
  | 'boolean'
  | 'amount'
  | readonly [Shape]
  | { readonly [member: string]: Shape };

export function validated<Value>(value: Value, shape: Shape): Value {
  const fault = incompatibility(value, shape, '');
  if (fault === undefined) return value;
  throw new UntrustedError('malformed', `The response of the service is invalid: ${fault}. Ask its operator.`);
}

function incompatibility(value: unknown, shape: Shape, path: string): string | undefined {
  if (shape === 'amount')
    return Number.isSafeInteger(value) && Number(value) >= 0 ? undefined : `${path} is not an amount`;
  if (typeof shape === 'string') return typeof value === shape ? undefined : `${path} is not a ${shape}`;
  const isList = Array.isArray(shape);
  const isOfKind = typeof value === 'object' && value !== null && Array.isArray(value) === isList;
  if (!isOfKind) return `${path || 'its JSON'} is not ${isList ? 'a list' : 'an object'}`;
  const members = isList ? Object.keys(value).map((index) => [index, shape[0]] as const) : Object.entries(shape);
  for (const [name, of] of members) {
    const fault = incompatibility((value as Record<string, unknown>)[name], of, path ? `${path}.${name}` : name);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
