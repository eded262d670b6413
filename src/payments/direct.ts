import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import { type AudioStore, StoreError } from '../audio/store.ts';
import { testPoint } from '../test-point.ts';
import type { FacilitatorPayment } from '../x402/facilitator.ts';
import type { Payment, Payments } from '../x402/payment.ts';
import { paymentAudioKey } from '../x402/payment-audio.ts';
import type { Settlement } from '../x402/settlement.ts';
import type { BufferedHold } from './buffered.ts';
import type { DirectWork, DirectWorkEnd } from './direct-work.ts';
import type { PaymentIntake, PaymentRequest, Reserved, Standing } from './intake.ts';
import { type Refused, refused } from './refusal.ts';

export interface DirectRequest extends PaymentRequest {
  /** The longest that a synthesis may take. */
  readonly timeoutMs: number;
  /** The client's address as limits count it. */
  readonly address: string;
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
/** When the checks of a payment have left less than this for the synthesis, it is not begun. */
const MIN_SYNTHESIS_MS = 1_000;

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
  readonly #work: DirectWork;
  readonly #log: FastifyBaseLogger;

  constructor(parts: {
    payments: Payments;
    settlement: Settlement;
    intake: PaymentIntake;
    store: AudioStore;
    work: DirectWork;
    log: FastifyBaseLogger;
  }) {
    this.#payments = parts.payments;
    this.#settlement = parts.settlement;
    this.#intake = parts.intake;
    this.#store = parts.store;
    this.#work = parts.work;
    this.#log = parts.log;
  }

  /** The answer to an exact repetition, or to a misuse of its identifier; undefined when the payment is new. */
  async replay(request: DirectRequest): Promise<DirectReplay | undefined> {
    const known = await this.#intake.find(request);
    return known && this.#answerKnown(known.payment, known.standing);
  }

  async authorize(request: DirectRequest): Promise<DirectAuthorization> {
    let endWork: (end: DirectWorkEnd) => void = () => {};
    let isHeld = false;
    try {
      const begun = await this.#intake.begin('speech', request, () => {
        const work = this.#work.begin(request.envelope.authorization.from, request.address);
        if (work.outcome === 'refused') return work;
        endWork = work.end;
        return undefined;
      });
      if (begun.outcome === 'refused') return begun;
      if (begun.outcome === 'known') return this.#answerKnown(begun.payment, begun.standing);
      const admitted = await this.#admit(begun, request, endWork);
      isHeld = admitted.outcome === 'held';
      return admitted;
    } finally {
      if (!isHeld) endWork('not begun');
    }
  }

  async #admit(
    reserved: Reserved,
    request: DirectRequest,
    endWork: (end: DirectWorkEnd) => void,
  ): Promise<DirectAuthorization> {
    testPoint('x402 reserved');
    const endLease = this.#payments.keepLease(reserved.payment);
    const end = (work: DirectWorkEnd) => {
      endLease();
      endWork(work);
    };
    try {
      const refusal = await this.#intake.admit(reserved);
      const left = leftMs(reserved.payment);
      if (!refusal && left >= MIN_SYNTHESIS_MS) {
        return { outcome: 'held', hold: this.#hold(reserved, Math.min(request.timeoutMs, left), end) };
      }
      endLease();
      if (refusal) return refusal;
      await this.#intake.release(reserved.payment);
      return refused('PAYMENT_REQUIRED', 'authorization_expires_too_soon');
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

  #hold({ payment, verifiable }: Reserved, timeoutMs: number, end: (end: DirectWorkEnd) => void): DirectHold {
    return {
      timeoutMs,
      capture: async (audio) => {
        try {
          const captured = await this.#capture(payment, verifiable, audio);
          end(endOf(captured));
          return captured;
        } finally {
          end('unsettled');
        }
      },
      void: async () => {
        end('voided');
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

/** What is left for a synthesis before the authorization ends (R28). */
const leftMs = ({ claim }: Payment): number => Number(claim.validBefore) * 1000 - Date.now() - SETTLE_RESERVE_MS;

/** A settlement was not tried when the audio could not be stored, or the reservation was lost. */
function endOf(captured: DirectCapture): DirectWorkEnd {
  if (captured.outcome === 'settled') return 'settled';
  const { code } = captured.refusal;
  return code === 'REPLAY_CACHE_UNAVAILABLE' || code === 'PAYMENT_REPLAY_PENDING' ? 'voided' : 'unsettled';
}
