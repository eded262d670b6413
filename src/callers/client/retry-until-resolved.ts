import { maxAudioBytes } from './api.ts';
import { OutcomeUnknownError, type SpeechgateError } from './errors.ts';
import type { Service } from './payment-way.ts';
import { canStillSettle, type PendingPurchase } from './pending-purchase.ts';
import { delayMs, pause, withDeadline } from './waiting.ts';

const REFUSALS = 3;

export type Outcome<Bought> =
  | { readonly outcome: 'bought'; readonly bought: Bought; readonly chargedMicroUsd: bigint }
  | { readonly outcome: 'lost'; readonly error: SpeechgateError; readonly chargedMicroUsd: bigint }
  /** Nothing was charged. `retry`: the same request, a new purchase, or one with fresh catalog and metadata. */
  | {
      readonly outcome: 'refused';
      readonly error: SpeechgateError;
      readonly retry?: 'same' | 'new' | 'terms';
      readonly retryAfterSeconds?: number | null;
      /** How far the local clock is ahead of the response's `Date`; 0 without one. */
      readonly clockAheadMs?: number;
    }
  | { readonly outcome: 'unknown'; readonly cause: unknown; readonly retryAfterSeconds?: number | null };

export type Resolution<Bought> =
  | Exclude<Outcome<Bought>, { outcome: 'unknown' }>
  | { readonly outcome: 'unknown'; readonly error: OutcomeUnknownError };

export interface PaidResponse {
  readonly pending: PendingPurchase;
  readonly response: Response;
  readonly body: ReadableStream<Uint8Array> | null;
  readonly errorBody: unknown;
  readonly isRetry: boolean;
  readonly service: Service;
  readonly signal: AbortSignal;
}

export type Reader<Bought> = (paid: PaidResponse) => Promise<Outcome<Bought>>;

export interface PendingRequest<Bought> {
  readonly pending: PendingPurchase;
  readonly service: Service;
  readonly read: Reader<Bought>;
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
  readonly responseTimeoutMs: number;
  readonly isRetry: boolean;
}

/** Repeats the identical request. After a lost response only a report of this payment's state ends the loop (R25). */
export async function retryUntilResolved<Bought>(pendingRequest: PendingRequest<Bought>): Promise<Resolution<Bought>> {
  const { pending, signal, timeoutMs } = pendingRequest;
  const deadline = Date.now() + timeoutMs;
  let { isRetry } = pendingRequest;
  let refusals = 0;
  for (let attempt = 1; ; attempt += 1) {
    const result = await sendOnce({ ...pendingRequest, isRetry });
    if (result.outcome === 'bought' || result.outcome === 'lost') return result;
    if (result.outcome === 'refused') refusals += 1;
    else isRetry = true;
    const isRefused = result.outcome === 'refused' && (result.retry !== 'same' || refusals === REFUSALS);
    const delay = delayMs(attempt, result.retryAfterSeconds ?? null);
    const isFinished = isRefused || signal?.aborted || Date.now() + delay > deadline;
    if (!isFinished && (await waited(delay, signal))) continue;
    // An earlier request may still arrive while its authorization is valid.
    if (result.outcome === 'refused' && !(isRetry && canStillSettle(pending, result.clockAheadMs))) return result;
    const lastCause = result.outcome === 'refused' ? result.error : result.cause;
    const cause = signal?.aborted ? signal.reason : lastCause;
    return { outcome: 'unknown', error: new OutcomeUnknownError(pending, { cause }) };
  }
}

async function sendOnce<Bought>(pendingRequest: PendingRequest<Bought>): Promise<Outcome<Bought>> {
  const { pending, service, read, signal, responseTimeoutMs, isRetry } = pendingRequest;
  try {
    return await withDeadline(responseTimeoutMs, signal, async (signal) => {
      // The signature covers these exact bytes.
      const { response, data, error } = await service.api.POST(pending.target as '/x402/tts', {
        headers: pending.headers,
        body: { text: pending.body },
        bodySerializer: () => pending.body,
        parseAs: 'stream',
        maxAudioBytes: maxAudioBytes(pending.body.length),
        signal,
      });
      const body = (data ?? null) as ReadableStream<Uint8Array> | null;
      const outcome = await read({ pending, response, body, errorBody: error, isRetry, service, signal });
      return outcome.outcome === 'refused' ? { ...outcome, clockAheadMs: clockAheadMs(response) } : outcome;
    });
  } catch (cause) {
    return { outcome: 'unknown', cause };
  }
}

function clockAheadMs({ headers }: Response): number {
  const date = Date.parse(headers.get('date') ?? '');
  return Number.isNaN(date) ? 0 : Date.now() - date;
}

const waited = (delay: number, signal: AbortSignal | undefined): Promise<boolean> =>
  pause(delay, signal).then(
    () => true,
    () => false,
  );
