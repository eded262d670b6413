import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import { type AudioStore, StoreError } from '../audio/store.ts';
import { testPoint } from '../test-point.ts';
import type { Resource } from '../x402/challenge.ts';
import type { PaymentEnvelope } from '../x402/envelope.ts';
import { FacilitatorError, type FacilitatorPayment } from '../x402/facilitator.ts';
import { findOffer, type Offer } from '../x402/offer.ts';
import type { Payment, Payments } from '../x402/payment.ts';
import { paymentAudioKey } from '../x402/payment-audio.ts';
import { RpcError } from '../x402/rpc.ts';
import type { Settlement } from '../x402/settlement.ts';
import type { UnsettledWork } from '../x402/unsettled-work.ts';
import type { BufferedHold } from './buffered.ts';
import { claimOf, misfitOf, type PaymentIntake, type PaymentRefusal, refused } from './intake.ts';

/** A paid request, as far as the payment is concerned. */
export interface DirectRequest {
  readonly method: string;
  /** Path and query as they were sent. */
  readonly url: string;
  readonly bytes: Uint8Array;
  readonly envelope: PaymentEnvelope;
  /** What may have been accepted. */
  readonly offers: readonly Offer[];
  readonly resource: Resource;
  /** The longest that a synthesis may take. */
  readonly timeoutMs: number;
}

/** What a settlement gave: the receipt, or why there is none. */
export type DirectCapture =
  | { readonly outcome: 'settled'; readonly receipt: string }
  | { readonly outcome: 'refused'; readonly refusal: PaymentRefusal };

export interface DirectHold extends BufferedHold<DirectCapture> {
  /** What is left for the synthesis before the authorization ends (R28). */
  readonly timeoutMs: number;
}

/** The answer to a request that was made before. */
export type DirectReplay =
  | { readonly outcome: 'replay'; readonly receipt: string; readonly audio: Readable }
  | { readonly outcome: 'refused'; readonly refusal: PaymentRefusal };

export type DirectAuthorization = DirectReplay | { readonly outcome: 'held'; readonly hold: DirectHold };

/** A synthesis ends this long before its authorization, for the settlement (R28). */
const SETTLE_RESERVE_MS = 10_000;

/**
 * Pays an order by one on-chain authorization, which is settled once the audio exists (R21 to R28, R45):
 *
 *     authorize: look the identifier up -> accepted is an offer -> times -> reserve -> verify, and the payer is solvent
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
    const known = await this.#payments.find(request.envelope.identifier);
    return known && this.#answerKnown(known, requestHash(request));
  }

  async authorize(request: DirectRequest): Promise<DirectAuthorization> {
    const hash = requestHash(request);
    const { envelope, offers, resource } = request;
    const known = await this.#payments.find(envelope.identifier);
    const answer = known && (await this.#answerKnown(known, hash));
    if (answer) return answer;

    const offer = findOffer(offers, envelope.accepted);
    const misfit = offer ? misfitOf(envelope, offer) : 'accepted_is_no_offer';
    if (!offer || misfit) return refused('PAYMENT_REQUIRED', misfit ?? '');
    if (this.#unsettledWork.isFull) return refused('TTS_UNAVAILABLE', 'too_many_unsettled');

    const { identifier } = envelope;
    const reservation = { purpose: 'speech', identifier, requestHash: hash, claim: claimOf(envelope) } as const;
    const reserved = await this.#intake.reserve(reservation, known);
    if (reserved.outcome === 'refused') return reserved;
    if (reserved.outcome === 'taken') {
      return (
        (await this.#answerKnown(reserved.winner, hash)) ?? refused('PAYMENT_REPLAY_PENDING', 'first_request_running')
      );
    }
    const { payment } = reserved;

    testPoint('x402 reserved');
    const endLease = this.#payments.keepLease(payment);
    const release = async () => {
      endLease();
      await this.#intake.release(payment);
    };
    try {
      const refusal = await this.#intake.check(payment, { envelope, offer, resource });
      if (!refusal)
        return { outcome: 'held', hold: this.#hold(payment, { envelope, offer, resource }, request, endLease) };
      await release();
      return refusal;
    } catch (error) {
      await release();
      if (error instanceof FacilitatorError || error instanceof RpcError) {
        this.#log.warn({ err: error }, 'a payment could not be verified');
        return refused('PAYMENT_ERROR', 'payment_service_failed');
      }
      throw error;
    }
  }

  /** Undefined when the row is an abandoned reservation of the same request, which may be taken over (R26). */
  async #answerKnown(known: Payment, hash: Buffer): Promise<DirectReplay | undefined> {
    if (!known.requestHash.equals(hash)) return refused('PAYMENT_IDENTIFIER_CONFLICT', 'identifier_of_another_request');
    switch (known.state) {
      case 'reserved':
        return known.isLeased ? refused('PAYMENT_REPLAY_PENDING', 'first_request_running') : undefined;
      case 'settled':
        return this.#replaySettled(known, known.receipt as string);
      case 'failed':
        return refused('PAYMENT_REQUIRED', known.refusal ?? 'settlement_failed');
      case 'settling':
        if (known.isLeased) return refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
        break;
    }
    const resolution = await this.#intake.resolve(known);
    if (resolution.outcome === 'settled')
      return this.#replaySettled({ ...known, isReplayable: true }, resolution.receipt);
    if (resolution.outcome === 'failed' || known.state === 'refused') {
      return refused('PAYMENT_REQUIRED', known.refusal ?? 'settlement_failed');
    }
    return refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown');
  }

  async #replaySettled(payment: Payment, receipt: string): Promise<DirectReplay> {
    if (!payment.isReplayable) return refused('PAYMENT_IDENTIFIER_CONFLICT', 'replay_window_over');
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

/** What makes a request the same: method, path, query, body bytes and payload (R22). */
export function requestHash({
  method,
  url,
  bytes,
  envelope,
}: Pick<DirectRequest, 'method' | 'url' | 'bytes' | 'envelope'>): Buffer {
  const hash = createHash('sha256').update(`${method}\0${url}\0${bytes.length}\0`).update(bytes);
  return hash.update(envelope.canonical).digest();
}
