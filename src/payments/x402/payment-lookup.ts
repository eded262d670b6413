import { createHash } from 'node:crypto';
import type { FastifyBaseLogger } from 'fastify';
import type { Asset } from '../../config/network.ts';
import type { PaymentOutcome } from '../../contract/types.ts';
import type { Database } from '../../db/database.ts';
import type { UsageRecord } from '../../ledger/hold.ts';
import { canonicalQuery } from '../../lib/canonical-query.ts';
import { chargedPayment, NOTHING_CHARGED, type Refused, refused, unknownPayment } from '../refusal.ts';
import { type Booking, failureReceipt, transactionOf } from './book-settlement.ts';
import type { Chain, TransferClaim } from './chain.ts';
import type { Offer, Resource } from './challenge.ts';
import { decodeEnvelope, InvalidEnvelope, type PaymentEnvelope } from './envelope.ts';
import type { Facilitator, FacilitatorPayment } from './facilitator.ts';
import { findByAuthorization, findByIdentifier, type Payment } from './payment.ts';
import type { Exposure } from './reservations.ts';
import type { Resolution, Resolver } from './resolver.ts';
import { RpcError } from './rpc.ts';
import { FACILITATOR_LACKS_GAS } from './solvency.ts';

/** What identifies a request (R22), and the trace id and log of this one. */
export interface PaymentIdentity {
  readonly method: string;
  readonly url: string;
  readonly bytes: Uint8Array;
  readonly traceId: string;
  readonly log: FastifyBaseLogger;
  readonly envelope: PaymentEnvelope;
}

export interface PaymentRequest extends PaymentIdentity {
  readonly offers: readonly Offer[];
  readonly resource: Resource;
  readonly usage?: UsageRecord | undefined;
}

/** Reads `payment-signature`; what is no payment is 400 INVALID_PAYMENT_PAYLOAD, before anything is verified (R74). */
export function readPaymentHeader(headers: Readonly<Record<string, string | undefined>>) {
  try {
    return { outcome: 'read' as const, credential: decodeEnvelope(String(headers['payment-signature'])) };
  } catch (error) {
    if (!(error instanceof InvalidEnvelope)) throw error;
    const { field, rule } = error;
    const message = `${error.message} You were not charged.`;
    return refused('INVALID_PAYMENT_PAYLOAD', 'malformed_payment', { fault: { field, rule, message } });
  }
}

/**
 * Hash of what identifies a request: method, path, canonical query (R49), body bytes and payload (R22). So a payment that
 * was sent by GET is another request by POST.
 */
export function requestHash({ method, url, bytes, envelope }: PaymentIdentity): Buffer {
  const path = decodeURIComponent(url.split('?', 1)[0] as string);
  const query = canonicalQuery(url);
  const target = query === '' ? path : `${path}?${query}`;
  const hash = createHash('sha256').update(`${method}\0${target}\0${bytes.length}\0`).update(bytes);
  return hash.update(envelope.canonical).digest();
}

export const claimOf = ({ authorization }: Pick<PaymentEnvelope, 'authorization'>): TransferClaim => ({
  payer: authorization.from,
  nonce: authorization.nonce,
  payTo: authorization.to,
  amount: authorization.value,
  validBefore: authorization.validBefore,
});

export type PaymentStatus =
  | ({ readonly outcome: 'settled'; readonly isReplayable: boolean } & Booking)
  | { readonly outcome: 'open'; readonly transaction: string | null }
  | Refused<'PAYMENT_IDENTIFIER_CONFLICT' | 'PAYMENT_REPLAY_PENDING' | 'PAYMENT_REQUIRED' | 'PAYMENT_ERROR'>;

type UsedRefusal = Refused<'PAYMENT_IDENTIFIER_CONFLICT' | 'PAYMENT_REQUIRED'>;

export interface KnownPayment {
  readonly outcome: 'known';
  readonly payment: Payment;
  readonly status: PaymentStatus;
}

export interface Reserved {
  readonly outcome: 'reserved';
  readonly payment: Payment;
  /** The request's. */
  readonly log: FastifyBaseLogger;
  readonly exposure?: Exposure;
  readonly facilitatorRequest: FacilitatorPayment;
  readonly verifiedBy: Facilitator | undefined;
}

/** Refusal of a payment whose settlement was refused, which may still land (R23), or has failed for good. */
export function settlementRefused(payment: Payment, reason: string, hasFailed = false) {
  const money = hasFailed ? NOTHING_CHARGED : unknownPayment(payment.claim.amount);
  if (reason === FACILITATOR_LACKS_GAS) return refused('PAYMENT_ERROR', reason, { payment: money });
  const receipt = { 'payment-response': failureReceipt(payment, reason) };
  return refused('PAYMENT_REQUIRED', reason, { receipt, payment: money });
}

/** Nothing was recorded of an authorization that the chain shows as used. */
export const unrecordedPayment = ({ authorization }: Pick<PaymentEnvelope, 'authorization'>, reason: string) =>
  refused('PAYMENT_REQUIRED', reason, { fault: USED, payment: unknownPayment(authorization.value) });

const USED = {
  field: 'payment-signature',
  rule: 'unused authorization',
  message:
    'This authorization is already used or cancelled on the chain, and no payment with it is on record here, so you may have been ' +
    'charged. Ask the operator before you sign another one.',
};

/** `asset` is undefined while x402 is off, the others without a chain node: payments in doubt then stay in doubt. */
interface PaymentLookupParts {
  readonly db: Database;
  readonly asset: Asset | undefined;
  readonly resolver: Resolver | undefined;
  readonly chain: Pick<Chain, 'isSpent'> | undefined;
}

/** Payments of earlier requests and their outcomes. Nothing here depends on today's settings (R45). */
export class PaymentLookup {
  readonly #parts: PaymentLookupParts;

  constructor(parts: PaymentLookupParts) {
    this.#parts = parts;
  }

  async find(request: PaymentIdentity): Promise<KnownPayment | undefined> {
    const { known, status } = await this.findWithStatus(request);
    return known && status && { outcome: 'known', payment: known, status };
  }

  /** Looks up the identifier. There is no status for an abandoned reservation of the same request (R26). */
  async findWithStatus(
    request: PaymentIdentity,
  ): Promise<{ known?: Payment | undefined; status?: PaymentStatus | undefined }> {
    const known = await findByIdentifier(this.#parts.db, request.envelope.identifier);
    return known ? { known, status: await this.#status(known, request) } : {};
  }

  /** Refuses an authorization that belongs to another payment (R22); otherwise returns undefined. */
  async refuseTaken(claim: TransferClaim): Promise<Refused<'PAYMENT_IDENTIFIER_CONFLICT'> | undefined> {
    const taken = await this.#findByAuthorization(claim);
    return taken && conflict('authorization_of_another_payment', taken);
  }

  /**
   * Refuses a payment that the chain shows as used and no other request has made; otherwise returns undefined. To be
   * asked before a refusal says that nothing was charged: a failover may have lost the record (R64). While no node
   * answers, the database is believed (R23).
   */
  async refuseUsed({ envelope, log }: Pick<PaymentIdentity, 'envelope' | 'log'>): Promise<UsedRefusal | undefined> {
    const claim = claimOf(envelope);
    if (!(await this.#isSpent(claim, log))) return undefined;
    const known = await this.#findByAuthorization(claim);
    // Booked from the chain, which shows no request.
    if (known?.requestHash.length === 0) return conflict('authorization_of_another_payment', known);
    if (known && known.state !== 'reserved') return undefined;
    log.warn(
      'the authorization of a payment is already used or cancelled on the chain, but the database has no payment with it, so the request was refused. The payer may have been charged earlier: if the database was restored from a backup, run speechgate reconcile --since TIME',
    );
    return unrecordedPayment(envelope, 'authorization_used');
  }

  async #isSpent(claim: TransferClaim, log: FastifyBaseLogger): Promise<boolean> {
    try {
      return (await this.#parts.chain?.isSpent(claim)) ?? false;
    } catch (err) {
      if (!(err instanceof RpcError)) throw err;
      log.warn(
        { err },
        'failed to ask a chain node whether a refused payment was used before. This request was not charged; check the nodes of X402_RPC_URL if this repeats',
      );
      return false;
    }
  }

  async #findByAuthorization(claim: TransferClaim): Promise<Payment | undefined> {
    const { db, asset } = this.#parts;
    return asset && findByAuthorization(db, asset, claim);
  }

  /** Undefined for an abandoned reservation of the same request, which may be taken over (R26). */
  async #status(known: Payment, request: PaymentIdentity): Promise<PaymentStatus | undefined> {
    if (!known.requestHash.equals(requestHash(request))) {
      // Another request has the identifier (R22). The authorization may be that request's or a third one's.
      const claim = claimOf(request.envelope);
      const isSame = known.claim.payer === claim.payer && known.claim.nonce === claim.nonce;
      const first = isSame ? known : await this.#findByAuthorization(claim);
      return (first ? undefined : await this.refuseUsed(request)) ?? conflict('identifier_of_another_request', first);
    }
    request.log.info(
      { payment: known.id, first: known.traceId },
      'a request repeated an earlier payment; it is not charged twice',
    );
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
    const resolution = await this.#resolve(known, request.log);
    if (resolution.outcome === 'settled') return { ...resolution, isReplayable: true };
    const reason = known.refusal ?? 'settlement_failed';
    if (resolution.outcome === 'failed') return settlementRefused(known, reason, true);
    const transaction = resolution.transaction ?? known.awaitedTransaction;
    if (known.state === 'refused' && transaction === null) return settlementRefused(known, reason);
    return { outcome: 'open', transaction };
  }

  /** Any error leaves the payment in doubt (R25, R62). */
  async #resolve(payment: Payment, log: FastifyBaseLogger): Promise<Resolution> {
    try {
      return (await this.#parts.resolver?.resolve(payment)) ?? { outcome: 'open' };
    } catch (error) {
      log.warn(
        { err: error, payment: payment.id },
        'failed to check whether a repeated payment was settled, so money may have moved. The service checks it again; no action is needed',
      );
      return { outcome: 'open' };
    }
  }
}

function conflict(reason: string, first: Payment | undefined): Refused<'PAYMENT_IDENTIFIER_CONFLICT'> {
  const isSettled = first?.state === 'settled';
  return refused('PAYMENT_IDENTIFIER_CONFLICT', isSettled ? 'paid_by_another_request' : reason, {
    payment: first ? outcomeOfPayment(first) : NOTHING_CHARGED,
  });
}

function outcomeOfPayment(payment: Payment): PaymentOutcome {
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
