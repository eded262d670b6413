import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import { type AudioStore, StoreError } from '../audio/audio-store.ts';
import { transactionOf } from '../x402/book-settlement.ts';
import type { Payment } from '../x402/payment.ts';
import { paymentAudioKey } from '../x402/payment-audio.ts';
import { type DirectReceipt, directReceipt, outcomeUnknown } from './direct-hold.ts';
import type { KnownPayments } from './known-payments.ts';
import type { Replayed } from './payment-flow.ts';
import { chargedPayment } from './payment-outcome.ts';
import type { PaymentIdentity } from './payment-request.ts';
import type { KnownPayment } from './payment-status.ts';
import { type Refused, refused } from './refusal.ts';

export type DirectReplay =
  | Replayed<Readable, DirectReceipt>
  | Refused<
      | 'PAYMENT_REQUIRED'
      | 'PAYMENT_IDENTIFIER_CONFLICT'
      | 'PAYMENT_REPLAY_PENDING'
      | 'PAYMENT_OUTCOME_UNKNOWN'
      | 'REPLAY_CACHE_UNAVAILABLE'
    >;

/** The answers to repetitions of direct payments. */
export class DirectReplays {
  readonly #known: KnownPayments;
  readonly #store: AudioStore;
  readonly #log: FastifyBaseLogger;

  constructor(parts: { known: KnownPayments; store: AudioStore; log: FastifyBaseLogger }) {
    this.#known = parts.known;
    this.#store = parts.store;
    this.#log = parts.log;
  }

  /** The answer to an exact repetition, or to a misuse of its identifier; undefined when the payment is new. */
  async find(request: PaymentIdentity): Promise<DirectReplay | undefined> {
    const known = await this.#known.find(request);
    return known && this.answer(known, request.envelope.identifier);
  }

  async answer({ payment, status }: KnownPayment, identifier: string): Promise<DirectReplay> {
    switch (status.outcome) {
      case 'settled': {
        const { receipt, isReplayable } = status;
        if (isReplayable) return this.#replay(payment, directReceipt(receipt, identifier, true));
        return refused('PAYMENT_IDENTIFIER_CONFLICT', 'replay_window_over', charged(payment, receipt));
      }
      case 'open':
        return outcomeUnknown(status.transaction ?? undefined);
      case 'refused':
        return status;
    }
  }

  async #replay(payment: Payment, receipt: DirectReceipt): Promise<DirectReplay> {
    try {
      const stored = await this.#store.open(paymentAudioKey(payment));
      if (stored) return { outcome: 'replayed', delivered: stored.stream, receipt };
      this.#log.error({ payment: payment.id }, 'the audio of a settled payment is missing');
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.#log.error({ err: error, payment: payment.id }, 'the audio of a settled payment could not be read');
    }
    return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_readable', charged(payment, receipt['payment-response']));
  }
}

const charged = ({ claim }: Payment, receipt: string) => ({
  payment: chargedPayment(claim.amount, transactionOf(receipt)),
});
