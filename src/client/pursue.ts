import { mostAudioBytes } from './bounded-response.ts';
import { OutcomeUnknownError, type SpeechgateError } from './errors.ts';
import type { Answer, Outcome, Reader } from './outcome.ts';
import type { Service } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { mayBeTaken } from './read-refusal.ts';
import { delayMs, pause, withDeadline } from './waiting.ts';

/** How often the service may say that it can't just now, before that is told. */
const REFUSALS = 3;

/** What a purchase came to. */
export type End<Bought> =
  | Extract<Outcome<Bought>, { outcome: 'bought' | 'lost' | 'refused' }>
  | { readonly outcome: 'unknown'; readonly error: OutcomeUnknownError };

export interface Pursuit<Bought> {
  readonly pending: PendingPurchase;
  readonly service: Service;
  readonly read: Reader<Bought>;
  readonly signal: AbortSignal | undefined;
  /** Milliseconds after which an unknown end is told as such. */
  readonly patienceMs: number;
  /** Milliseconds that one answer may take. */
  readonly answerMs: number;
  /** Whether an earlier request with this payment may have arrived. */
  readonly isRepetition: boolean;
}

/**
 * Sends a pending request, and sends it again, identical, until it is known what became of it. Once an answer was lost,
 * only an answer that says what happened to this very payment ends it.
 */
export async function pursue<Bought>(pursuit: Pursuit<Bought>): Promise<End<Bought>> {
  const { pending, signal, patienceMs } = pursuit;
  const end = Date.now() + patienceMs;
  let { isRepetition } = pursuit;
  let refusals = 0;
  for (let attempt = 1; ; attempt += 1) {
    const told = await askOnce({ ...pursuit, isRepetition });
    if (told.outcome === 'bought' || told.outcome === 'lost') return told;
    if (told.outcome === 'refused') refusals += 1;
    else isRepetition = true;
    const isRefused = told.outcome === 'refused' && (told.again !== 'identical' || refusals === REFUSALS);
    const delay = delayMs(attempt, told.retryAfterSeconds ?? null);
    const isOver = isRefused || signal?.aborted || Date.now() + delay > end;
    if (!isOver && (await hasWaited(delay, signal))) continue;
    // An earlier request with an authorization that has not ended may still arrive.
    if (told.outcome === 'refused' && !(isRepetition && mayBeTaken(pending, told.clockAheadMs ?? 0))) return told;
    const cause = signal?.aborted ? signal.reason : causeOf(told);
    return { outcome: 'unknown', error: new OutcomeUnknownError(pending, { cause }) };
  }
}

async function askOnce<Bought>({
  pending,
  service,
  read,
  signal,
  answerMs,
  isRepetition,
}: Pursuit<Bought>): Promise<Outcome<Bought>> {
  try {
    return await withDeadline(answerMs, signal, async (signal) => {
      const answer = await send(service, pending, signal);
      const outcome = await read({ pending, answer, isRepetition, service, signal });
      return outcome.outcome === 'refused' ? { ...outcome, clockAheadMs: clockAheadMs(answer.response) } : outcome;
    });
  } catch (cause) {
    return { outcome: 'unknown', cause };
  }
}

function clockAheadMs({ headers }: Response): number {
  const date = Date.parse(headers.get('date') ?? '');
  return Number.isNaN(date) ? 0 : Date.now() - date;
}

const causeOf = (told: { readonly error: SpeechgateError } | { readonly cause: unknown }): unknown =>
  'error' in told ? told.error : told.cause;

const hasWaited = (delay: number, signal: AbortSignal | undefined): Promise<boolean> =>
  pause(delay, signal).then(
    () => true,
    () => false,
  );

/** Sends the request as it was signed, byte for byte. */
async function send({ api }: Service, pending: PendingPurchase, signal: AbortSignal): Promise<Answer> {
  const { response, data, error } = await api.POST(pending.target as '/x402/tts', {
    headers: pending.headers,
    body: { text: pending.body },
    bodySerializer: () => pending.body,
    parseAs: 'stream',
    mostAudioBytes: mostAudioBytes(pending.body.length),
    signal,
  });
  return { response, body: (data ?? null) as ReadableStream<Uint8Array> | null, error };
}
