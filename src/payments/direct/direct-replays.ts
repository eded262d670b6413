import type { FastifyBaseLogger } from 'fastify';
import { type AudioStore, StoreError } from '../../speech/store/audio-store.ts';
import { chargedPayment, NOTHING_CHARGED, type Refused, refused } from '../refusal.ts';
import type { NewRequest, Replayed, RequestContext } from '../speak.ts';
import { transactionOf } from '../x402/book-settlement.ts';
import type { Payment } from '../x402/payment.ts';
import {
  type KnownPayment,
  type PaymentIdentity,
  type PaymentLookup,
  readPaymentHeader,
} from '../x402/payment-lookup.ts';
import { paymentAudioKey } from '../x402/payment-states.ts';
import { type DirectReceipt, directReceipt, outcomeUnknown, type SettleCode } from './direct-payment.ts';

export type DirectReplay = Replayed | Refused<SettleCode | 'PAYMENT_IDENTIFIER_CONFLICT'>;

interface DirectReplaysParts {
  readonly lookup: PaymentLookup;
  readonly store: AudioStore;
}

/**
 * Repetitions of a paid request (R22). For REPLAY_WINDOW_SECONDS, a day, it gets its audio and receipt again, with
 * `x-idempotent-replay: true`, and charges nothing.
 */
export class DirectReplays {
  readonly name = 'direct';
  readonly #parts: DirectReplaysParts;

  constructor(parts: DirectReplaysParts) {
    this.#parts = parts;
  }

  /** The response to a repetition, or to a misused identifier (R22); undefined without a readable payment. */
  async find(
    headers: Readonly<Record<string, string | undefined>>,
    { method, url, bytes, traceId, log }: RequestContext,
  ): Promise<DirectReplay | NewRequest | undefined> {
    const shown = readPaymentHeader(headers);
    if (shown.outcome === 'refused') return undefined;
    const identity = { method, url, bytes, traceId, log, envelope: shown.credential };
    const known = await this.#parts.lookup.find(identity);
    if (known) return this.answer(known, identity);
    return (await this.#parts.lookup.refuseUsed(identity)) ?? { outcome: 'new', payment: NOTHING_CHARGED };
  }

  async answer({ payment, status }: KnownPayment, { envelope, log }: PaymentIdentity): Promise<DirectReplay> {
    switch (status.outcome) {
      case 'settled': {
        const { receipt, isReplayable } = status;
        if (isReplayable) return this.#replay(payment, directReceipt(receipt, envelope, { isReplay: true }), log);
        return refused('PAYMENT_IDENTIFIER_CONFLICT', 'replay_window_over', charged(payment, receipt));
      }
      case 'open':
        return outcomeUnknown(status.transaction ?? undefined);
      case 'refused':
        return status;
    }
  }

  async #replay(payment: Payment, receipt: DirectReceipt, log: FastifyBaseLogger): Promise<DirectReplay> {
    const paid = charged(payment, receipt['payment-response']);
    try {
      const stored = await this.#parts.store.dated.x402.open(paymentAudioKey(payment));
      if (stored) return { outcome: 'replayed', audio: stored.stream, sizeBytes: stored.size, receipt };
      log.error(
        { payment: payment.id },
        'the audio store does not have the audio of a paid request, so its repetition gets 503 and is not charged again. Find out what deleted the audio, or whether processes use different stores',
      );
      return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_lost', paid);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      log.error(
        { err: error, payment: payment.id },
        'failed to read the stored audio of a paid request, so its repetition gets 503 and is not charged again. Read err for the cause',
      );
      return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_readable', paid);
    }
  }
}

const charged = ({ claim }: Payment, receipt: string) => ({
  payment: chargedPayment(claim.amount, transactionOf(receipt)),
});
