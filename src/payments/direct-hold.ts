import type { FastifyBaseLogger } from 'fastify';
import { type AudioStore, StoreError } from '../audio/audio-store.ts';
import type { SpokenBy } from '../ledger/paid-for.ts';
import { testPoint } from '../lib/test-point.ts';
import type { WorkInProgress } from '../lib/work-in-progress.ts';
import type { Payment } from '../x402/payment.ts';
import { paymentAudioKey } from '../x402/payment-audio.ts';
import type { Settlement } from '../x402/settlement.ts';
import type { DirectWorkEnd } from './direct-work.ts';
import type { PaymentIntake } from './intake.ts';
import type { PaymentHold } from './payment-flow.ts';
import { type Reserved, settlementRefused } from './payment-status.ts';
import { type Refused, refused } from './refusal.ts';

export interface DirectReceipt extends Record<string, string | boolean> {
  /** Base64 of the settlement's receipt. */
  readonly 'payment-response': string;
  readonly 'x-payment-identifier': string;
  readonly 'x-idempotent-replay': boolean;
}

/** Why a capture gave nothing. */
type CaptureCode =
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_REPLAY_PENDING'
  | 'PAYMENT_OUTCOME_UNKNOWN'
  | 'REPLAY_CACHE_UNAVAILABLE';

export interface DirectHoldParts {
  readonly settlement: Settlement;
  readonly intake: PaymentIntake;
  readonly store: AudioStore;
  readonly log: FastifyBaseLogger;
  /** What waits for the facilitator is taken from it. */
  readonly inProgress: WorkInProgress;
  /** Told once what the synthesis came to. */
  end(end: DirectWorkEnd): void;
}

/** A synthesis ends this long before its authorization, for the settlement (R28). */
const SETTLE_RESERVE_MS = 10_000;

/** A reserved and verified payment. Its money moves with the capture, which can't be taken back. */
export class DirectHold implements PaymentHold<CaptureCode> {
  /** What was left for the synthesis, when the hold was made, before the authorization ends (R28). */
  readonly timeoutMs: number;
  readonly #reserved: Reserved;
  readonly #parts: DirectHoldParts;
  #receipt: DirectReceipt | undefined;

  constructor(reserved: Reserved, parts: DirectHoldParts) {
    const { validBefore } = reserved.payment.claim;
    this.timeoutMs = Number(validBefore) * 1000 - Date.now() - SETTLE_RESERVE_MS;
    this.#reserved = reserved;
    this.#parts = parts;
  }

  /** Undefined until it is settled. */
  get receipt(): DirectReceipt | undefined {
    return this.#receipt;
  }

  async capture(upstream: SpokenBy | undefined, audio: Buffer): Promise<Refused<CaptureCode> | undefined> {
    const { end } = this.#parts;
    try {
      const refusal = await this.#capture(upstream, audio);
      end(endOf(refusal));
      return refusal;
    } finally {
      end('unsettled');
    }
  }

  async void(): Promise<void> {
    this.#parts.end('voided');
    await this.#parts.intake.release(this.#reserved.payment);
  }

  async #capture(upstream: SpokenBy | undefined, audio: Buffer): Promise<Refused<CaptureCode> | undefined> {
    const { payment, verifiable } = this.#reserved;
    if (!(await this.#store(payment, audio))) {
      return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_stored', { isUncharged: true });
    }
    const { inProgress, settlement } = this.#parts;
    const settled = await inProgress.waitFor(settlement.settle(payment, verifiable, { upstream }));
    switch (settled.outcome) {
      case 'settled':
        this.#receipt = directReceipt(settled.receipt, verifiable.envelope.identifier, false);
        return undefined;
      case 'refused':
        return settlementRefused(payment, settled.reason);
      case 'unknown':
        return outcomeUnknown(settled.transaction);
      case 'lost':
        return refused('PAYMENT_REPLAY_PENDING', 'taken_over');
    }
  }

  /** False when the store failed; the payment is released then. */
  async #store(payment: Payment, audio: Buffer): Promise<boolean> {
    const { store, intake, log } = this.#parts;
    try {
      await store.put(paymentAudioKey(payment), audio, 'audio/mpeg');
      return true;
    } catch (error) {
      testPoint('x402 audio not stored');
      await intake.release(payment);
      if (!(error instanceof StoreError)) throw error;
      log.error({ err: error }, 'audio could not be stored; its payment was not settled');
      return false;
    }
  }
}

/** @param isReplay the payment was settled by an earlier request */
export const directReceipt = (receipt: string, identifier: string, isReplay: boolean): DirectReceipt => ({
  'payment-response': receipt,
  'x-payment-identifier': identifier,
  'x-idempotent-replay': isReplay,
});

/** @param transaction that may hold the transfer, where one is known */
export const outcomeUnknown = (transaction: string | undefined) =>
  refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown', transaction === undefined ? {} : { transaction });

/** A settlement was not tried when the audio could not be stored, or the reservation was lost. */
function endOf(refusal: Refused<CaptureCode> | undefined): DirectWorkEnd {
  if (!refusal) return 'settled';
  const isUntried = refusal.code === 'REPLAY_CACHE_UNAVAILABLE' || refusal.code === 'PAYMENT_REPLAY_PENDING';
  return isUntried ? 'voided' : 'unsettled';
}
