import type { FastifyBaseLogger } from 'fastify';
import type { PaymentOutcome } from '../contract/types.ts';
import type { Database } from '../db/database.ts';
import { transactionOf } from '../x402/book-settlement.ts';
import type { TransferClaim } from '../x402/chain.ts';
import type { Asset } from '../x402/network.ts';
import { findByAuthorization, findByIdentifier, type Payment } from '../x402/payment.ts';
import type { Resolution, Resolver } from '../x402/resolver.ts';
import { chargedPayment, NOTHING_CHARGED, unknownPayment } from './payment-outcome.ts';
import { claimOf, type PaymentIdentity, requestHash } from './payment-request.ts';
import { type KnownPayment, type PaymentStatus, settlementRefused } from './payment-status.ts';
import { type Refused, refused } from './refusal.ts';

export interface KnownPaymentsParts {
  readonly db: Database;
  /** Undefined while payment under x402 is off. */
  readonly asset: Asset | undefined;
  /** Undefined while the chain can't be asked: a payment in doubt stays in doubt. */
  readonly resolver: Resolver | undefined;
  readonly log: FastifyBaseLogger;
}

/** Payments that earlier requests made, and what has become of them. None of it depends on today's settings (R45). */
export class KnownPayments {
  readonly #parts: KnownPaymentsParts;

  constructor(parts: KnownPaymentsParts) {
    this.#parts = parts;
  }

  /** The payment that an earlier request made under this identifier; undefined when there is none that counts. */
  async find(request: PaymentIdentity): Promise<KnownPayment | undefined> {
    const { known, status } = await this.look(request);
    return known && status && { outcome: 'known', payment: known, status };
  }

  /** What is known of the identifier; no status for an abandoned reservation of the same request (R26). */
  async look(request: PaymentIdentity): Promise<{ known?: Payment | undefined; status?: PaymentStatus | undefined }> {
    const known = await findByIdentifier(this.#parts.db, request.envelope.identifier);
    return known ? { known, status: await this.#status(known, request) } : {};
  }

  /** Why a payment is refused whose authorization is another payment's (R22); undefined when it is none's. */
  async refuseTaken(claim: TransferClaim): Promise<Refused<'PAYMENT_IDENTIFIER_CONFLICT'> | undefined> {
    const taken = await this.#findByAuthorization(claim);
    return taken && conflict('authorization_of_another_payment', taken);
  }

  async #findByAuthorization(claim: TransferClaim): Promise<Payment | undefined> {
    const { db, asset } = this.#parts;
    return asset && findByAuthorization(db, asset, claim);
  }

  /** Undefined for an abandoned reservation of the same request, which may be taken over (R26). */
  async #status(known: Payment, request: PaymentIdentity): Promise<PaymentStatus | undefined> {
    if (!known.requestHash.equals(requestHash(request))) {
      // The identifier is another request's (R22); the authorization may be that one's too, or a third one's.
      const claim = claimOf(request.envelope);
      const isSame = known.claim.payer === claim.payer && known.claim.nonce === claim.nonce;
      return conflict('identifier_of_another_request', isSame ? known : await this.#findByAuthorization(claim));
    }
    const { log } = this.#parts;
    const facts = { traceId: request.traceId, payment: known.id, first: known.traceId };
    log.info(facts, 'the payment of an earlier request is shown');
    switch (known.state) {
      case 'reserved':
        return known.isLeased ? refused('PAYMENT_REPLAY_PENDING', 'first_request_running') : undefined;
      case 'settled':
        return { outcome: 'settled', receipt: known.receipt as string, isNew: false, isReplayable: known.isReplayable };
      case 'failed':
        return settlementRefused(known, known.refusal ?? 'settlement_failed', true);
      case 'settling':
        if (known.isLeased) return refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
        break;
    }
    const resolution = await this.#resolve(known);
    if (resolution.outcome === 'settled') return { ...resolution, isReplayable: true };
    const reason = known.refusal ?? 'settlement_failed';
    if (resolution.outcome === 'failed') return settlementRefused(known, reason, true);
    const transaction = resolution.transaction ?? known.awaitedTransaction;
    if (known.state === 'refused' && transaction === null) return settlementRefused(known, reason);
    return { outcome: 'open', transaction };
  }

  /** Whatever keeps the answer away leaves the payment as doubtful as it was (R25, R62). */
  async #resolve(payment: Payment): Promise<Resolution> {
    const { resolver, log } = this.#parts;
    try {
      return (await resolver?.resolve(payment)) ?? { outcome: 'open' };
    } catch (error) {
      log.warn({ err: error, payment: payment.id }, 'what became of a payment could not be found out or recorded');
      return { outcome: 'open' };
    }
  }
}

/** @param first has used this authorization; undefined when nothing has */
function conflict(reason: string, first: Payment | undefined): Refused<'PAYMENT_IDENTIFIER_CONFLICT'> {
  const isSettled = first?.state === 'settled';
  return refused('PAYMENT_IDENTIFIER_CONFLICT', isSettled ? 'paid_by_another_request' : reason, {
    payment: first ? moneyOf(first) : NOTHING_CHARGED,
  });
}

function moneyOf(payment: Payment): PaymentOutcome {
  const { amount } = payment.claim;
  switch (payment.state) {
    case 'settled':
      return chargedPayment(amount, transactionOf(payment.receipt as string));
    case 'failed':
      return NOTHING_CHARGED;
    default:
      return unknownPayment(amount, payment.awaitedTransaction ?? undefined);
  }
}
