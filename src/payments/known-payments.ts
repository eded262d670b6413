import type { FastifyBaseLogger } from 'fastify';
import type { Payment } from '../x402/payment.ts';
import type { Reservations } from '../x402/reservations.ts';
import type { Resolution, Resolver } from '../x402/resolver.ts';
import { type PaymentRequest, requestHash } from './payment-request.ts';
import type { KnownPayment, PaymentStatus } from './payment-status.ts';
import { refused } from './refusal.ts';

export interface KnownPaymentsParts {
  readonly reservations: Reservations;
  readonly resolver: Resolver;
  readonly log: FastifyBaseLogger;
}

/** Payments that earlier requests made, and what has become of them. */
export class KnownPayments {
  readonly #reservations: Reservations;
  readonly #resolver: Resolver;
  readonly #log: FastifyBaseLogger;

  constructor({ reservations, resolver, log }: KnownPaymentsParts) {
    this.#reservations = reservations;
    this.#resolver = resolver;
    this.#log = log;
  }

  /** The payment that an earlier request made under this identifier; undefined when there is none that counts. */
  async find(request: PaymentRequest): Promise<KnownPayment | undefined> {
    const { known, status } = await this.look(request);
    return known && status && { outcome: 'known', payment: known, status };
  }

  /** What is known of the identifier; no status for an abandoned reservation of the same request (R26). */
  async look(request: PaymentRequest): Promise<{ known?: Payment | undefined; status?: PaymentStatus | undefined }> {
    const known = await this.#reservations.find(request.envelope.identifier);
    return known ? { known, status: await this.#status(known, requestHash(request), request.traceId) } : {};
  }

  /** Undefined for an abandoned reservation of the same request, which may be taken over (R26). */
  async #status(known: Payment, hash: Buffer, traceId: string): Promise<PaymentStatus | undefined> {
    // The identifier is another request's (R22).
    if (!known.requestHash.equals(hash)) return refused('PAYMENT_IDENTIFIER_CONFLICT', 'identifier_of_another_request');
    this.#log.info({ traceId, payment: known.id, first: known.traceId }, 'the payment of an earlier request is shown');
    switch (known.state) {
      case 'reserved':
        return known.isLeased ? refused('PAYMENT_REPLAY_PENDING', 'first_request_running') : undefined;
      case 'settled':
        return { outcome: 'settled', receipt: known.receipt as string, isNew: false, isReplayable: known.isReplayable };
      case 'failed':
        return refused('PAYMENT_REQUIRED', known.refusal ?? 'settlement_failed');
      case 'settling':
        if (known.isLeased) return refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
        break;
    }
    const resolution = await this.#resolve(known);
    if (resolution.outcome === 'settled') return { ...resolution, isReplayable: true };
    const transaction = (resolution.outcome === 'open' && resolution.transaction) || known.awaitedTransaction;
    if (resolution.outcome === 'failed' || (known.state === 'refused' && transaction === null)) {
      return refused('PAYMENT_REQUIRED', known.refusal ?? 'settlement_failed');
    }
    return { outcome: 'open', transaction };
  }

  /** Whatever keeps the answer away leaves the payment as doubtful as it was (R25, R62). */
  async #resolve(payment: Payment): Promise<Resolution> {
    try {
      return await this.#resolver.resolve(payment);
    } catch (error) {
      this.#log.warn(
        { err: error, payment: payment.id },
        'what became of a payment could not be found out or recorded',
      );
      return { outcome: 'open' };
    }
  }
}
