import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import type { PaymentOutcome } from '../contract/types.ts';
import type { UpstreamUsage, UsageRecord } from '../ledger/hold.ts';
import { testPoint } from '../lib/test-point.ts';
import { SpeechError, type Utterance } from '../speech/provider.ts';
import type { SynthesisPermits } from '../speech/synthesis-permits.ts';
import type { Delivery, ReadySpeech } from './delivery.ts';
import type { PendingSlot } from './limits/rolling-window.ts';
import type { Receipt, Refused } from './refusal.ts';

/**
 * A way to pay for speech. The operation reads the credential; `speak` authorizes, and ends the hold:
 *
 *     credentialOf  the request's headers -> a credential, or a refusal
 *     authorize     the credential -> a hold, the response that was paid before, or a refusal
 *     the hold      is ended by exactly one of capture and void
 *
 * A hold is a transfer of the ledger (BalanceHold) or a payment on the chain (DirectHold). Both have a lease, and a
 * reconciler ends them if their process dies.
 */
export interface PaymentFlow<Credential, C extends Charge = Charge> {
  readonly name: string;
  credentialOf(
    headers: Readonly<Record<string, string | undefined>>,
  ): { readonly outcome: 'read'; readonly credential: Credential } | Refused;
  /** Whether the credential seems valid, for limits only (R48): `authorize` checks again, so never charge on this. */
  verify?(credential: Credential, request: RequestContext): Promise<boolean>;
  /** Holds the price. */
  authorize(credential: Credential, charge: C): Promise<Authorization>;
}

/** What became of a credential. A flow's own `authorize` returns some of these, with its own hold, receipt and codes. */
export type Authorization = Held | Replayed | Refused;

export interface Held<Hold extends PaymentHold = PaymentHold> {
  readonly outcome: 'held';
  readonly hold: Hold;
}

/** The response that was paid before. */
export interface Replayed {
  readonly outcome: 'replayed';
  readonly audio: Readable;
  readonly sizeBytes: number;
  readonly receipt: Receipt | undefined;
}

/** No earlier request with this payment was found, as far as `payment` says (R64). */
export interface NewRequest {
  readonly outcome: 'new';
  readonly payment: PaymentOutcome;
}

export interface Charge {
  readonly utterance: Utterance;
  readonly priceMicroUsd: bigint;
  readonly usage: UsageRecord;
  readonly request: RequestContext;
  readonly slot?: PendingSlot;
}

export interface RequestContext {
  readonly method: string;
  readonly url: string;
  readonly bytes: Uint8Array;
  readonly client: string;
  readonly traceId: string;
  /** Adds the trace id to each line. */
  readonly log: FastifyBaseLogger;
  readonly response: ResponseEvents;
}

export interface ResponseEvents {
  /** Called once, when the last byte was handed over or the caller disconnected. `isError`: nothing may be charged. */
  onEnd(listener: (isError: boolean) => void): void;
  /** The caller has disconnected. */
  readonly isClosed: boolean;
  abort(): void;
}

export interface PaymentHold {
  readonly receipt: Receipt | undefined;
  readonly timeoutMs?: number;
  /** Takes the money before the response, in flows that do so (R21). If refused, the audio must not be delivered. */
  settle?(upstream: UpstreamUsage | undefined, audio: Buffer): Promise<Refused | undefined>;
  /** Takes the money after delivery. Returns false if the hold had ended before: nothing is charged. */
  capture(upstream: UpstreamUsage | undefined, audio?: Buffer): Promise<boolean>;
  /** Returns a refusal if another request has the payment by now: it may be charged (R64). */
  void(): Promise<Refused | undefined>;
  /** Renews the lease until the returned function is called. Once the lease is lost, nothing may be delivered. */
  keepLease?(onLost: () => void): () => void;
  /** Whether no other process can own it yet, even if this process was frozen. */
  ownsLease?(): boolean;
}

export interface Sale<Outcome extends Authorization, Body> {
  /** The flow's `authorize` of the payer's credential for the charge. */
  readonly authorize: () => Promise<Outcome>;
  readonly charge: Charge;
  readonly delivery: Delivery<Body>;
  readonly permits: SynthesisPermits;
  onHeld?(hold: HoldOf<Outcome>): void;
  /** The upstream broke off after the response had begun. */
  onBrokenOff?(error: Error): void;
}

type HoldOf<Outcome extends Authorization> = Extract<Outcome, Held>['hold'];

export type SaleOutcome<Outcome extends Authorization, Body> =
  | {
      readonly outcome: 'ready';
      /** To be sent now. */
      readonly body: Body;
      readonly hold: HoldOf<Outcome>;
      /** Whether it was charged, once the response has ended. */
      readonly captured: Promise<boolean>;
    }
  | Exclude<Outcome, Held>
  | SpeechFailed;

export interface SpeechFailed {
  readonly outcome: 'failed';
  readonly error: SpeechError;
  readonly hold: PaymentHold | undefined;
}

/**
 * Sells speech through any flow and delivery, except the speech of jobs: `end-job.ts` captures or refunds that (R18).
 * Balances are debited before synthesis (R12, R71), a direct payment settles after it (R21). The books follow the
 * delivery (R55):
 *
 *     take a permit      else failed: nothing is asked of the payer
 *     authorize          the price is held under a lease; else refused, or the response that was paid before
 *     synthesize         if the upstream fails, or the caller disconnected before: void, which refunds the debit
 *     settle             if the flow takes the money before the response (R21)
 *     respond            the lease is renewed meanwhile; if it may be lost, the response is aborted
 *     capture            after the last byte was handed over, or the caller disconnected and synthesis ended
 *
 * If the process dies before the capture, the lease expires and a reconciler voids the hold: in doubt the caller has
 * not paid. If nothing was held, the operation looks up what was paid before.
 */
export async function speak<Outcome extends Authorization, Body>(
  sale: Sale<Outcome, Body>,
): Promise<SaleOutcome<Outcome, Body>> {
  const releasePermit = await sale.permits.take();
  if (releasePermit instanceof SpeechError) return { outcome: 'failed', error: releasePermit, hold: undefined };
  let stopRenewing: (() => void) | undefined;
  let isReady = false;
  try {
    if (sale.charge.request.response.isClosed) return { outcome: 'failed', error: callerLeft(), hold: undefined };
    const authorization = await sale.authorize();
    if (authorization.outcome !== 'held') return authorization as Exclude<Outcome, Held>;
    const hold: HoldOf<Outcome> = authorization.hold;
    sale.onHeld?.(hold);
    testPoint('speech held');
    const lost = new AbortController();
    stopRenewing = hold.keepLease?.(() => {
      lost.abort();
      sale.charge.request.response.abort();
    });
    const spoken = await synthesize(sale, hold, lost);
    if (spoken.outcome === 'failed') return spoken;
    // Only a hold refuses here, with the codes of its flow.
    if (spoken.outcome === 'refused') return spoken as Exclude<Outcome, Held>;
    isReady = true;
    const { body, complete } = spoken.speech;
    // Begun and not awaited: it waits for the response, which the caller of this function sends.
    const captured = endHold(sale, hold, spoken.speech, lost.signal).finally(stopRenewing);
    complete.then(releasePermit, releasePermit);
    return { outcome: 'ready', body, hold, captured };
  } finally {
    if (!isReady) {
      stopRenewing?.();
      releasePermit();
    }
  }
}

const callerLeft = () =>
  new SpeechError('TTS_UNAVAILABLE', 'The caller disconnected before the synthesis began.', true);

const FAILED_BESIDE_ANOTHER =
  'speech synthesis failed, and this attempt was not charged. An identical request may still be charged for the same payment; the caller is told to repeat the request. Read err for the cause';

const ownsLease = (hold: PaymentHold): boolean => hold.ownsLease?.() ?? true;

/** Synthesizes, and settles in flows that do so before the response. Voids the hold if that fails. */
async function synthesize<Body>(
  { charge, delivery }: { readonly charge: Charge; readonly delivery: Delivery<Body> },
  hold: PaymentHold,
  lost: AbortController,
): Promise<{ readonly outcome: 'ready'; readonly speech: ReadySpeech<Body> } | Refused | SpeechFailed> {
  try {
    if (charge.request.response.isClosed) throw callerLeft();
    const utterance = { ...charge.utterance, traceId: charge.request.traceId };
    const speech = await delivery(utterance, { timeoutMs: hold.timeoutMs, lost: lost.signal });
    if (!ownsLease(hold)) {
      lost.abort();
      // Nothing else awaits a stream that breaks off now.
      speech.complete.catch(() => {});
      throw new SpeechError('TTS_UNAVAILABLE', 'The hold of the price expired before the synthesis ended.', true);
    }
    const refusal = speech.audio && (await hold.settle?.(speech.upstream, speech.audio));
    return refusal ?? { outcome: 'ready', speech };
  } catch (error) {
    testPoint('speech failed');
    const taken = await hold.void();
    if (!(error instanceof SpeechError)) throw error;
    if (!taken) return { outcome: 'failed', error, hold };
    charge.request.log.warn({ err: error }, FAILED_BESIDE_ANOTHER);
    return taken;
  }
}

/**
 * Captures once the response is delivered and the synthesis is complete; otherwise voids. A response that breaks off
 * ends after the void, so that the payer's balance then shows it.
 */
async function endHold<Outcome extends Authorization, Body>(
  { charge, onBrokenOff }: Sale<Outcome, Body>,
  hold: PaymentHold,
  { upstream, audio, complete, abort }: ReadySpeech<Body>,
  lost: AbortSignal,
): Promise<boolean> {
  // Before anything is awaited: the response may end meanwhile.
  const mayCharge = new Promise<boolean>((resolve) => charge.request.response.onEnd((isError) => resolve(!isError)));
  const brokenOff = await complete.then(
    () => undefined,
    (error: Error) => error,
  );
  try {
    // A process that was frozen beyond the lease may see the disconnect before it sees the lost lease.
    if (!brokenOff && (await mayCharge) && !lost.aborted && ownsLease(hold)) {
      return await hold.capture(upstream, audio);
    }
    if (brokenOff) onBrokenOff?.(brokenOff);
    await hold.void();
    return false;
  } finally {
    if (brokenOff) abort?.(brokenOff);
  }
}
