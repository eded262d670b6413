import type { UpstreamUsage } from '../../ledger/hold.ts';
import { testPoint } from '../../lib/test-point.ts';
import { type AudioStore, StoreError } from '../../speech/store/audio-store.ts';
import { type Refused, refused } from '../refusal.ts';
import type { Charge, Held, PaymentFlow, PaymentHold } from '../speak.ts';
import type { Offer, Resource } from '../x402/challenge.ts';
import type { PaymentEnvelope } from '../x402/envelope.ts';
import { type PaymentIntake, TAKEN_OVER } from '../x402/payment-intake.ts';
import { type Reserved, readPaymentHeader, settlementRefused } from '../x402/payment-lookup.ts';
import { paymentAudioKey } from '../x402/payment-states.ts';
import type { Reservations } from '../x402/reservations.ts';
import type { Settlement, VerifiedPayment } from '../x402/settlement.ts';
import type { DirectReplay, DirectReplays } from './direct-replays.ts';
import type { DirectWork, DirectWorkEnd } from './direct-work.ts';

export interface DirectReceipt extends Record<string, string | boolean> {
  readonly 'payment-response': string;
  readonly 'x-payment-identifier': string;
  readonly 'x-idempotent-replay': boolean;
}

export type SettleCode =
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_ERROR'
  | 'PAYMENT_REPLAY_PENDING'
  | 'PAYMENT_OUTCOME_UNKNOWN'
  | 'REPLAY_CACHE_UNAVAILABLE';

/** A synthesis ends this long before its authorization expires, to leave time for the settlement (R28). */
const SETTLE_RESERVE_MS = 10_000;

/** A reserved and verified payment. Its money moves before the response, and can't be refunded (R21). */
export class DirectHold implements PaymentHold {
  /** Time left for the synthesis when the hold was made (R28). */
  readonly timeoutMs: number;
  /** Undefined until the payment is settled; then `void` does nothing. */
  receipt: DirectReceipt | undefined;
  readonly #verified: VerifiedPayment;
  readonly #parts: DirectPaymentParts;
  readonly #end: (end: DirectWorkEnd) => void;

  constructor(verified: VerifiedPayment, parts: DirectPaymentParts, end: (end: DirectWorkEnd) => void) {
    const { validBefore } = verified.payment.claim;
    this.timeoutMs = Number(validBefore) * 1000 - Date.now() - SETTLE_RESERVE_MS;
    this.#verified = verified;
    this.#parts = parts;
    this.#end = end;
  }

  async settle(upstream: UpstreamUsage | undefined, audio: Buffer): Promise<Refused<SettleCode> | undefined> {
    try {
      const refusal = await this.#settle(upstream, audio);
      this.#end(endOf(refusal));
      return refusal;
    } finally {
      // Only the first end counts.
      this.#end('unsettled');
    }
  }

  async capture(): Promise<boolean> {
    return true;
  }

  async void(): Promise<Refused<SettleCode> | undefined> {
    if (this.receipt) return undefined;
    this.#end('voided');
    return this.#parts.intake.release(this.#verified);
  }

  async #settle(upstream: UpstreamUsage | undefined, audio: Buffer): Promise<Refused<SettleCode> | undefined> {
    const { payment, facilitatorRequest } = this.#verified;
    const unstored = await this.#store(audio);
    if (unstored) return unstored;
    const { settlement, inclusionTimeoutMs: timeoutMs } = this.#parts;
    const settled = await settlement.settle(this.#verified, { upstream, timeoutMs });
    switch (settled.outcome) {
      case 'settled':
        this.receipt = directReceipt(settled.receipt, facilitatorRequest.envelope, { isReplay: false });
        return undefined;
      case 'refused':
        return settlementRefused(payment, settled.reason);
      case 'unknown':
        return outcomeUnknown(settled.transaction);
      case 'lost':
        return TAKEN_OVER;
    }
  }

  /** Releases the reservation if it fails (R24). */
  async #store(audio: Buffer): Promise<Refused<SettleCode> | undefined> {
    const { store, intake } = this.#parts;
    const { payment, log } = this.#verified;
    try {
      await store.dated.x402.put(paymentAudioKey(payment), audio, 'audio/mpeg');
      return undefined;
    } catch (error) {
      testPoint('x402 audio not stored');
      const taken = await intake.release(this.#verified);
      if (!(error instanceof StoreError)) throw error;
      log.error(
        { err: error },
        'failed to store the audio of a payment, so this attempt failed and charged nothing. Read err for the cause',
      );
      return taken ?? refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_stored', { isUncharged: true });
    }
  }
}

/** The headers of a paid response: false for the original, true for its repetition (R22). */
export const directReceipt = (
  receipt: string,
  { identifier }: Pick<PaymentEnvelope, 'identifier'>,
  { isReplay }: { readonly isReplay: boolean },
): DirectReceipt => ({
  'payment-response': receipt,
  'x-payment-identifier': identifier,
  'x-idempotent-replay': isReplay,
});

/** What a payment without a known outcome is answered with (R25). */
export const outcomeUnknown = (transaction: string | undefined) =>
  refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown', transaction === undefined ? {} : { transaction });

/** The settlement was not tried if the audio could not be stored, or if the reservation was lost. */
function endOf(refusal: Refused<SettleCode> | undefined): DirectWorkEnd {
  if (!refusal) return 'settled';
  if (refusal.code === 'PAYMENT_ERROR') return 'facilitator failed';
  const isUntried = refusal.code === 'REPLAY_CACHE_UNAVAILABLE' || refusal.code === 'PAYMENT_REPLAY_PENDING';
  return isUntried ? 'voided' : 'unsettled';
}

export const DIRECT_HEADERS = ['payment-signature'] as const;

type DirectCode =
  | SettleCode
  | 'INVALID_PAYMENT_PAYLOAD'
  | 'PAYMENT_IDENTIFIER_CONFLICT'
  | 'RATE_LIMITED'
  | 'TTS_UNAVAILABLE';

export interface OfferedCharge extends Charge {
  readonly offers: readonly Offer[];
  readonly resource: Resource;
}

const MIN_SYNTHESIS_MS = 1_000;

interface DirectPaymentParts {
  readonly reservations: Reservations;
  readonly settlement: Settlement;
  readonly replays: DirectReplays;
  readonly intake: PaymentIntake;
  readonly store: AudioStore;
  readonly directWork: DirectWork;
  readonly inclusionTimeoutMs: number;
}

/**
 * Pays by one on-chain authorization per request, without an account (R71). It is settled by the operator's facilitator
 * once the audio exists (R21 to R28):
 *
 *     authorize: reserve identifier and authorization, then verify (PaymentIntake)
 *     settle:    store the audio -> settle (DirectHold)
 *     void:      release the reservation
 */
export class DirectPayment implements PaymentFlow<PaymentEnvelope, OfferedCharge> {
  readonly name = 'direct';
  readonly credentialOf = readPaymentHeader;
  readonly #parts: DirectPaymentParts;

  constructor(parts: DirectPaymentParts) {
    this.#parts = parts;
  }

  async authorize(
    envelope: PaymentEnvelope,
    charge: OfferedCharge,
  ): Promise<Held<DirectHold> | DirectReplay | Refused<DirectCode>> {
    let endWork: (end: DirectWorkEnd) => void = () => {};
    let isHeld = false;
    try {
      const { request, offers, resource, usage } = charge;
      // The request has getters, so it can't be spread.
      const { method, url, bytes, traceId, log } = request;
      const payment = { method, url, bytes, traceId, log, envelope, offers, resource, usage };
      const begun = await this.#parts.intake.begin('speech', payment, () => {
        const work = this.#parts.directWork.begin(envelope.authorization.from, request.client);
        if (work.outcome === 'refused') return work;
        endWork = work.end;
        return undefined;
      });
      if (begun.outcome === 'refused') return begun;
      if (begun.outcome === 'known') return await this.#parts.replays.answer(begun, payment);
      const admitted = await this.#admit(begun, endWork);
      isHeld = admitted.outcome === 'held';
      return admitted;
    } finally {
      if (!isHeld) endWork('not begun');
    }
  }

  async #admit(reserved: Reserved, endWork: (end: DirectWorkEnd) => void) {
    testPoint('x402 reserved');
    const endLease = this.#parts.reservations.keepLease(reserved.payment);
    const end = (workEnd: DirectWorkEnd) => {
      endLease();
      endWork(workEnd);
    };
    try {
      const admitted = await this.#parts.intake.admit(reserved);
      if (admitted.outcome === 'refused') {
        endLease();
        return admitted;
      }
      const hold = new DirectHold(admitted, this.#parts, end);
      if (hold.timeoutMs >= MIN_SYNTHESIS_MS) return { outcome: 'held' as const, hold };
      endLease();
      const taken = await this.#parts.intake.release(reserved);
      return taken ?? refused('PAYMENT_REQUIRED', 'authorization_expires_too_soon');
    } catch (error) {
      endLease();
      throw error;
    }
  }
}
