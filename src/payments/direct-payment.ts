import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import { type AudioStore, StoreError } from '../audio/audio-store.ts';
import { testPoint } from '../lib/test-point.ts';
import type { WorkInProgress } from '../lib/work-in-progress.ts';
import { addressKey } from '../limits/address-key.ts';
import type { Resource } from '../x402/challenge.ts';
import type { PaymentEnvelope } from '../x402/envelope.ts';
import type { Offer } from '../x402/offer.ts';
import type { Payment } from '../x402/payment.ts';
import { paymentAudioKey } from '../x402/payment-audio.ts';
import type { Reservations } from '../x402/reservations.ts';
import type { Settlement } from '../x402/settlement.ts';
import { DirectHold, type DirectReceipt, directReceipt, outcomeUnknown } from './direct-hold.ts';
import type { DirectWork, DirectWorkEnd } from './direct-work.ts';
import type { PaymentIntake } from './intake.ts';
import type { KnownPayments } from './known-payments.ts';
import type { Authorization, Charge, PaymentFlow, Replayed } from './payment-flow.ts';
import { type PaymentRequest, readPaymentHeader } from './payment-request.ts';
import { type KnownPayment, type Reserved, settlementRefused } from './payment-status.ts';
import { type Refused, refused } from './refusal.ts';

/** The request headers that show the flow's credential. */
export const DIRECT_HEADERS = ['payment-signature'] as const;

/** What the payer of speech that failed is told, and whoever is refused before a payment. */
export const NOT_SETTLED = 'Nothing was settled.';

export type DirectCode =
  | 'INVALID_PAYMENT_PAYLOAD'
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_IDENTIFIER_CONFLICT'
  | 'PAYMENT_REPLAY_PENDING'
  | 'PAYMENT_OUTCOME_UNKNOWN'
  | 'RATE_LIMITED'
  | 'PAYMENT_ERROR'
  | 'REPLAY_CACHE_UNAVAILABLE'
  | 'TTS_UNAVAILABLE';

/** What is paid for, and the offers that may have been accepted for it. */
export interface OfferedCharge extends Charge {
  readonly offers: readonly Offer[];
  readonly resource: Resource;
}

type DirectReplay = Replayed<Readable, DirectReceipt> | Refused<DirectCode>;

/** When the checks of a payment have left less than this for the synthesis, it is not begun. */
const MIN_SYNTHESIS_MS = 1_000;

/**
 * Pays by one on-chain authorization, which is settled once the audio exists (R21 to R28):
 *
 *     authorize: begin and admit the payment (PaymentIntake)
 *     capture:   store the audio -> settle (DirectHold)
 *     void:      release the reservation
 */
export class DirectPayment implements PaymentFlow<PaymentEnvelope, DirectCode, DirectHold, OfferedCharge, Readable> {
  readonly name = 'direct';
  readonly isRemote = true;
  readonly untaken = NOT_SETTLED;
  readonly #reservations: Reservations;
  readonly #settlement: Settlement;
  readonly #known: KnownPayments;
  readonly #intake: PaymentIntake;
  readonly #store: AudioStore;
  readonly #work: DirectWork;
  readonly #inProgress: WorkInProgress;
  readonly #log: FastifyBaseLogger;

  constructor(parts: {
    reservations: Reservations;
    settlement: Settlement;
    known: KnownPayments;
    intake: PaymentIntake;
    store: AudioStore;
    work: DirectWork;
    inProgress: WorkInProgress;
    log: FastifyBaseLogger;
  }) {
    this.#reservations = parts.reservations;
    this.#settlement = parts.settlement;
    this.#known = parts.known;
    this.#intake = parts.intake;
    this.#store = parts.store;
    this.#work = parts.work;
    this.#inProgress = parts.inProgress;
    this.#log = parts.log;
  }

  credentialOf(headers: Readonly<Record<string, string | undefined>>) {
    return readPaymentHeader(headers);
  }

  /** The answer to an exact repetition, or to a misuse of its identifier; undefined when the payment is new. */
  async replay(envelope: PaymentEnvelope, charge: OfferedCharge): Promise<DirectReplay | undefined> {
    const known = await this.#known.find(requestOf(envelope, charge));
    return known && this.#answerKnown(known, envelope);
  }

  async authorize(
    envelope: PaymentEnvelope,
    charge: OfferedCharge,
  ): Promise<Authorization<DirectCode, DirectHold, Readable>> {
    let endWork: (end: DirectWorkEnd) => void = () => {};
    let isHeld = false;
    try {
      const beginning = this.#intake.begin('speech', requestOf(envelope, charge), () => {
        const work = this.#work.begin(envelope.authorization.from, addressKey(charge.request.ip));
        if (work.outcome === 'refused') return work;
        endWork = work.end;
        return undefined;
      });
      // For the node, and for the facilitator where the payer is a contract.
      const begun = await this.#inProgress.waitFor(beginning);
      if (begun.outcome === 'refused') return begun;
      if (begun.outcome === 'known') return await this.#answerKnown(begun, envelope);
      const admitted = await this.#admit(begun, endWork);
      isHeld = admitted.outcome === 'held';
      return admitted;
    } finally {
      if (!isHeld) endWork('not begun');
    }
  }

  async #admit(
    reserved: Reserved,
    endWork: (end: DirectWorkEnd) => void,
  ): Promise<Authorization<DirectCode, DirectHold, Readable>> {
    testPoint('x402 reserved');
    const endLease = this.#reservations.keepLease(reserved.payment);
    const end = (work: DirectWorkEnd) => {
      endLease();
      endWork(work);
    };
    try {
      const refusal = await this.#inProgress.waitFor(this.#intake.admit(reserved));
      if (refusal) {
        endLease();
        return refusal;
      }
      const hold = new DirectHold(reserved, {
        ...{ settlement: this.#settlement, intake: this.#intake, store: this.#store, log: this.#log },
        ...{ inProgress: this.#inProgress, end },
      });
      if (hold.timeoutMs >= MIN_SYNTHESIS_MS) return { outcome: 'held', hold };
      endLease();
      await this.#intake.release(reserved.payment);
      return refused('PAYMENT_REQUIRED', 'authorization_expires_too_soon');
    } catch (error) {
      endLease();
      throw error;
    }
  }

  async #answerKnown({ payment, status }: KnownPayment, { identifier }: PaymentEnvelope): Promise<DirectReplay> {
    switch (status.outcome) {
      case 'settled':
        return status.isReplayable
          ? this.#replaySettled(payment, directReceipt(status.receipt, identifier, true))
          : refused('PAYMENT_IDENTIFIER_CONFLICT', 'replay_window_over');
      case 'open':
        return outcomeUnknown(status.transaction ?? undefined);
      case 'refused':
        return status.code === 'PAYMENT_REQUIRED' ? settlementRefused(payment, status.reason) : status;
    }
  }

  async #replaySettled(payment: Payment, receipt: DirectReceipt): Promise<DirectReplay> {
    try {
      const stored = await this.#store.open(paymentAudioKey(payment));
      if (stored) return { outcome: 'replayed', delivered: stored.stream, receipt };
      this.#log.error({ payment: payment.id }, 'the audio of a settled payment is missing');
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.#log.error({ err: error, payment: payment.id }, 'the audio of a settled payment could not be read');
    }
    return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_readable');
  }
}

const requestOf = (
  envelope: PaymentEnvelope,
  { request, offers, resource, paidFor }: OfferedCharge,
): PaymentRequest => {
  const { method, url, bytes, traceId } = request;
  return { method, url, bytes, traceId, envelope, offers, resource, paidFor };
};
