import type { FastifyBaseLogger } from 'fastify';
import { withFullV } from '../crypto/wallet-signature.ts';
import { isUnavailable } from '../db/database-errors.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Chain } from '../x402/chain.ts';
import { type Facilitator, FacilitatorError, type FacilitatorPayment, type Verification } from '../x402/facilitator.ts';
import type { Asset } from '../x402/network.ts';
import { findOffer } from '../x402/offer.ts';
import type { Payment, PaymentPurpose } from '../x402/payment.ts';
import type { Reservations } from '../x402/reservations.ts';
import { RpcError } from '../x402/rpc.ts';
import { isOfUndeployed, isSignedByPayer } from '../x402/transfer-digest.ts';
import { breachOf } from './authorization-terms.ts';
import type { KnownPayments } from './known-payments.ts';
import { claimOf, type PaymentRequest, requestHash } from './payment-request.ts';
import type { KnownPayment, Reserved } from './payment-status.ts';
import { type Refused, refused } from './refusal.ts';
import { isSolvent } from './solvency.ts';

export interface IntakeParts {
  readonly reservations: Reservations;
  readonly known: KnownPayments;
  readonly facilitator: Facilitator;
  readonly chain: Chain;
  readonly asset: Asset;
  readonly log: FastifyBaseLogger;
}

/**
 * What every payment by an on-chain authorization goes through before it may be settled (R45):
 *
 *     begin: look the identifier up -> accepted is an offer -> payee, amount and times -> the payer has made it
 *            -> reserve identifier and authorization
 *     admit: verify, and the payer is solvent; else release
 *
 * Most payments are new and in order. So what can be told without asking anybody is looked at first, and the reservation
 * tells whether the payment is new, in one statement; the identifier is looked up when something speaks against it.
 *
 * Whatever is reserved blocks its identifier and authorization, and counts against its payer. So nothing is before the
 * payment is known to be the payer's: by the signature of his key, which is recovered here, or, where the payer is a
 * contract that judges signatures itself (EIP-1271), deployed or not yet (ERC-6492), by the facilitator's yes, for which that call comes first. Two
 * payments of a contract are then reserved one after the other, as all are, and the later one sees the earlier.
 */
export class PaymentIntake {
  readonly #reservations: Reservations;
  readonly #known: KnownPayments;
  readonly #facilitator: Facilitator;
  readonly #chain: Chain;
  readonly #asset: Asset;
  readonly #log: FastifyBaseLogger;

  constructor(parts: IntakeParts) {
    this.#reservations = parts.reservations;
    this.#known = parts.known;
    this.#facilitator = parts.facilitator;
    this.#chain = parts.chain;
    this.#asset = parts.asset;
    this.#log = parts.log;
  }

  /**
   * Reserves identifier and authorization, or takes an abandoned reservation of the same request over (R26).
   * @param refuseNew what speaks against a new payment that was made by its payer
   */
  async begin<NewRefusal extends Refused = never>(
    purpose: PaymentPurpose,
    request: PaymentRequest,
    refuseNew: () => NewRefusal | undefined = () => undefined,
  ): Promise<
    Reserved | KnownPayment | Refused<'PAYMENT_REQUIRED' | 'PAYMENT_ERROR' | 'PAYMENT_IDENTIFIER_CONFLICT'> | NewRefusal
  > {
    const terms = this.#termsOf(purpose, request);
    const isSigned = terms.outcome === 'agreed' && terms.isSignedByKey;
    const first = isSigned ? (refuseNew() ?? (await this.#reserve(purpose, request))) : undefined;
    if (isSigned && first?.outcome === 'reserved') {
      return { verifiable: terms.verifiable, isVerified: false, ...first };
    }
    const { known, status } = await this.#known.look(request);
    if (known && status) return { outcome: 'known', payment: known, status };
    if (terms.outcome === 'refused') return terms;
    if (first?.outcome === 'refused') return first;
    const { verifiable } = terms;
    if (!first) {
      const refusal = (await this.#proveByContract(verifiable, known)) ?? refuseNew();
      if (refusal) return refusal;
    }
    const again = await this.#reserve(purpose, request, known);
    const winner = again.outcome === 'taken' ? await this.#known.look(request) : undefined;
    // Without a winner, the authorization belongs to another identifier, or the winner was released a moment ago.
    const last = winner && !winner.known ? await this.#reserve(purpose, request) : again;
    if (last.outcome === 'refused') return last;
    if (last.outcome === 'reserved') return { verifiable, isVerified: !first, ...last };
    if (!winner?.known) return (await this.#known.refuseTaken(claimOf(request.envelope))) ?? AUTHORIZATION_TAKEN;
    const running = refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
    return { outcome: 'known', payment: winner.known, status: winner.status ?? running };
  }

  /** What speaks against the reserved payment; it is released then, and also when this throws. */
  async admit(reserved: Reserved): Promise<Refused<'PAYMENT_REQUIRED' | 'RATE_LIMITED' | 'PAYMENT_ERROR'> | undefined> {
    const { payment } = reserved;
    let refusal: Awaited<ReturnType<PaymentIntake['admit']>>;
    try {
      refusal = await this.#check(reserved).catch((error) => this.#unverifiable(error));
    } catch (error) {
      await this.release(payment);
      throw error;
    }
    if (refusal) {
      testPoint('x402 not admitted');
      await this.release(payment);
    }
    return refusal;
  }

  /** When the database is away, the reservation ends with its lease. */
  async release(payment: Payment): Promise<void> {
    try {
      await this.#reservations.release(payment);
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.#log.warn({ err: error }, 'a reservation could not be released now; it ends with its lease');
    }
  }

  /** @param abandoned is taken over; undefined for a payment that seems to be new */
  async #reserve(
    purpose: PaymentPurpose,
    request: PaymentRequest,
    abandoned?: Payment,
  ): Promise<ReservationResult | Refused<'PAYMENT_ERROR'>> {
    const headBlock = await this.#head();
    if (headBlock === undefined) return refused('PAYMENT_ERROR', 'chain_unreachable');
    const { envelope, traceId, paidFor } = request;
    const { identifier } = envelope;
    if (abandoned) {
      const payment = await this.#reservations.takeOver(abandoned, headBlock);
      return payment ? { outcome: 'reserved', payment } : TAKEN;
    }
    const claim = claimOf(envelope);
    const reservation = { purpose, identifier, requestHash: requestHash(request), claim, headBlock, traceId, paidFor };
    const reserved = await this.#reservations.reserve(reservation);
    return reserved ? { outcome: 'reserved', ...reserved } : TAKEN;
  }

  /**
   * What of a request its payer has agreed to, or what of it is not as it was offered. A deposit that is not signed by the
   * key of its payer does not get here (R35). The facilitator gets what tokens take: v 27 or 28 (R67); what only looks like
   * the signature of a key may be that of a contract, and is left as it is.
   */
  #termsOf(purpose: PaymentPurpose, { envelope, offers, resource }: PaymentRequest) {
    const offer = findOffer(offers, envelope.accepted);
    if (!offer) return refused('PAYMENT_REQUIRED', 'accepted_is_no_offer');
    const breach = breachOf(envelope, offer);
    if (breach) return breach;
    const isSignedByKey = purpose === 'deposit' || isSignedByPayer(envelope, this.#asset);
    const signature = isSignedByKey ? withFullV(envelope.signature) : envelope.signature;
    const verifiable: FacilitatorPayment = { envelope: { ...envelope, signature }, offer, resource };
    return { outcome: 'agreed' as const, isSignedByKey, verifiable };
  }

  /**
   * Whether the payment is that of a payer which is a contract, or why it is refused. That its authorization belongs to
   * another payment is looked up before the facilitator is asked (R45).
   */
  async #proveByContract(
    verifiable: FacilitatorPayment,
    abandoned: Payment | undefined,
  ): Promise<Refused<'PAYMENT_REQUIRED' | 'PAYMENT_ERROR' | 'PAYMENT_IDENTIFIER_CONFLICT'> | undefined> {
    const { envelope } = verifiable;
    try {
      if (!isOfUndeployed(envelope.signature) && !(await this.#chain.hasCode(envelope.authorization.from))) {
        return refused('PAYMENT_REQUIRED', 'invalid_signature');
      }
      const taken = abandoned ? undefined : await this.#known.refuseTaken(claimOf(envelope));
      if (taken) return taken;
      const verification = await this.#facilitator.verify(verifiable);
      return verification.valid ? undefined : this.#invalid(verification);
    } catch (error) {
      return this.#unverifiable(error);
    }
  }

  #invalid({ reason, detail }: Extract<Verification, { valid: false }>): Refused<'PAYMENT_REQUIRED'> {
    this.#log.warn({ detail }, 'the facilitator finds a payment invalid');
    return refused('PAYMENT_REQUIRED', reason);
  }

  /** The refusal when facilitator or chain can't be asked; throws any other error on. */
  #unverifiable(error: unknown): Refused<'PAYMENT_ERROR'> {
    if (!(error instanceof FacilitatorError || error instanceof RpcError)) throw error;
    this.#log.warn({ err: error }, 'a payment could not be verified');
    return refused('PAYMENT_ERROR', 'payment_service_failed');
  }

  async #check({ payment, verifiable, isVerified, ...reserved }: Reserved) {
    const exposure = reserved.exposure ?? (await this.#reservations.exposure(payment));
    if (exposure.hasFailedLately && exposure.running > 0) return refused('RATE_LIMITED', 'one_at_a_time_after_failure');
    const [verification, canPay] = await Promise.all([
      isVerified ? VALID : this.#facilitator.verify(verifiable),
      isSolvent({ chain: this.#chain, reservations: this.#reservations }, payment, exposure),
    ]);
    if (!verification.valid) return this.#invalid(verification);
    return canPay ? undefined : refused('PAYMENT_REQUIRED', 'insufficient_funds');
  }

  /** Undefined when the chain can't be asked. */
  async #head(): Promise<bigint | undefined> {
    try {
      return await this.#chain.head();
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      this.#log.warn({ err: error }, 'the chain could not be asked for its head');
      return undefined;
    }
  }
}

type ReservationResult =
  | ({ readonly outcome: 'reserved' } & Pick<Reserved, 'payment' | 'exposure'>)
  /** Identifier or authorization are another payment's. */
  | typeof TAKEN;
const TAKEN = { outcome: 'taken' } as const;

const VALID = { valid: true } as const;
/** R22. */
const AUTHORIZATION_TAKEN = refused('PAYMENT_IDENTIFIER_CONFLICT', 'authorization_of_another_payment');
