import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import { type AudioStore, StoreError } from '../audio/store.ts';
import { testPoint } from '../test-point.ts';
import type { FacilitatorPayment } from '../x402/facilitator.ts';
import type { Payment, Payments } from '../x402/payment.ts';
import { paymentAudioKey } from '../x402/payment-audio.ts';
import type { Settlement } from '../x402/settlement.ts';
import type { UnsettledWork } from '../x402/unsettled-work.ts';
import type { BufferedHold } from './buffered.ts';
import type { PaymentIntake, PaymentRequest, Standing } from './intake.ts';
import { type Refused, refused } from './refusal.ts';

export interface DirectRequest extends PaymentRequest {
  /** The longest that a synthesis may take. */
  readonly timeoutMs: number;
}

/** What a settlement gave: the receipt, or why there is none. */
export type DirectCapture = { readonly outcome: 'settled'; readonly receipt: string } | Refused;

export interface DirectHold extends BufferedHold<DirectCapture> {
  /** What is left for the synthesis before the authorization ends (R28). */
  readonly timeoutMs: number;
}

/** The answer to a request that was made before. */
export type DirectReplay = { readonly outcome: 'replay'; readonly receipt: string; readonly audio: Readable } | Refused;

export type DirectAuthorization = DirectReplay | { readonly outcome: 'held'; readonly hold: DirectHold };

/** A synthesis ends this long before its authorization, for the settlement (R28). */
const SETTLE_RESERVE_MS = 10_000;

/**
 * Pays an order by one on-chain authorization, which is settled once the audio exists (R21 to R28):
 *
 *     authorize: begin and admit the payment (PaymentIntake)
 *     capture:   store the audio -> settle
 *     void:      release the reservation
 */
export class DirectPayment {
  readonly #payments: Payments;
  readonly #settlement: Settlement;
  readonly #intake: PaymentIntake;
  readonly #store: AudioStore;
  readonly #unsettledWork: UnsettledWork;
  readonly #log: FastifyBaseLogger;

  constructor(parts: {
    payments: Payments;
    settlement: Settlement;
    intake: PaymentIntake;
    store: AudioStore;
    unsettledWork: UnsettledWork;
    log: FastifyBaseLogger;
  }) {
    this.#payments = parts.payments;
    this.#settlement = parts.settlement;
    this.#intake = parts.intake;
    this.#store = parts.store;
    this.#unsettledWork = parts.unsettledWork;
    this.#log = parts.log;
  }

  /** The answer to an exact repetition, or to a misuse of its identifier; undefined when the payment is new. */
  async replay(request: DirectRequest): Promise<DirectReplay | undefined> {
    const known = await this.#intake.find(request);
    return known && this.#answerKnown(known.payment, known.standing);
  }

  async authorize(request: DirectRequest): Promise<DirectAuthorization> {
    const begun = await this.#intake.begin('speech', request, () =>
      this.#unsettledWork.isFull ? refused('TTS_UNAVAILABLE', 'too_many_unsettled') : undefined,
    );
    if (begun.outcome === 'refused') return begun;
    if (begun.outcome === 'known') return this.#answerKnown(begun.payment, begun.standing);
    const { payment, verifiable } = begun;
    testPoint('x402 reserved');
    const endLease = this.#payments.keepLease(payment);
    try {
      const refusal = await this.#intake.admit(begun);
      if (!refusal) return { outcome: 'held', hold: this.#hold(payment, verifiable, request, endLease) };
      endLease();
      return refusal;
    } catch (error) {
      endLease();
      throw error;
    }
  }

  async #answerKnown(payment: Payment, standing: Standing): Promise<DirectReplay> {
    switch (standing.outcome) {
      case 'settled':
        return standing.isReplayable
          ? this.#replaySettled(payment, standing.receipt)
          : refused('PAYMENT_IDENTIFIER_CONFLICT', 'replay_window_over');
      case 'open':
        return refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown');
      case 'refused':
        return standing;
    }
  }

  async #replaySettled(payment: Payment, receipt: string): Promise<DirectReplay> {
    try {
      const stored = await this.#store.open(paymentAudioKey(payment));
      if (stored) return { outcome: 'replay', receipt, audio: stored.stream };
      this.#log.error({ payment: payment.id }, 'the audio of a settled payment is missing');
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.#log.error({ err: error, payment: payment.id }, 'the audio of a settled payment could not be read');
    }
    return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_readable');
  }

  #hold(payment: Payment, request: FacilitatorPayment, { timeoutMs }: DirectRequest, endLease: () => void): DirectHold {
    const endWork = this.#unsettledWork.begin();
    const leftMs = Number(payment.claim.validBefore) * 1000 - Date.now() - SETTLE_RESERVE_MS;
    const end = (isSettled: boolean) => {
      endLease();
      endWork(isSettled);
    };
    return {
      timeoutMs: Math.min(timeoutMs, leftMs),
      capture: async (audio) => {
        try {
          const captured = await this.#capture(payment, request, audio);
          end(captured.outcome === 'settled');
          return captured;
        } finally {
          end(false);
        }
      },
      void: async () => {
        end(false);
        await this.#intake.release(payment);
      },
    };
  }

  async #capture(payment: Payment, request: FacilitatorPayment, audio: Buffer): Promise<DirectCapture> {
    try {
      await this.#store.put(paymentAudioKey(payment), audio, 'audio/mpeg');
    } catch (error) {
      await this.#intake.release(payment);
      if (!(error instanceof StoreError)) throw error;
      this.#log.error({ err: error }, 'audio could not be stored; its payment was not settled');
      return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_stored');
    }
    const settled = await this.#settlement.settle(payment, request);
    switch (settled.outcome) {
      case 'settled':
        return settled;
      case 'refused':
        return refused('PAYMENT_REQUIRED', settled.reason);
      case 'unknown':
        return refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown');
      case 'lost':
        return refused('PAYMENT_REPLAY_PENDING', 'taken_over');
    }
  }
}
