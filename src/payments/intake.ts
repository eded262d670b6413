import type { FastifyBaseLogger } from 'fastify';
import { isUnavailable } from '../db/database-errors.ts';
import type { Chain } from '../x402/chain.ts';
import { type Facilitator, FacilitatorError, type FacilitatorPayment } from '../x402/facilitator.ts';
import type { Asset } from '../x402/network.ts';
import { findOffer } from '../x402/offer.ts';
import type { Payment, PaymentPurpose } from '../x402/payment.ts';
import type { Reservations } from '../x402/reservations.ts';
import type { Resolution, Resolver } from '../x402/resolver.ts';
import { RpcError } from '../x402/rpc.ts';
import { isSignedByPayer } from '../x402/transfer-digest.ts';
import { breachOf } from './authorization-terms.ts';
import { claimOf, type PaymentRequest, requestHash } from './payment-request.ts';
import type { KnownPayment, PaymentStatus, Reserved } from './payment-status.ts';
import { type Refused, refused } from './refusal.ts';
import { isSolvent } from './solvency.ts';

export interface IntakeParts {
  readonly reservations: Reservations;
  readonly resolver: Resolver;
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
 * Whatever is reserved blocks its identifier and authorization, and counts against its payer. So nothing is before the
 * payment is known to be the payer's: by the signature of his key, which is recovered here, or, where the payer is a
 * contract that judges signatures itself (EIP-1271), by the facilitator's yes, for which that call comes first. Two
 * payments of a contract are then reserved one after the other, as all are, and the later one sees the earlier.
 */
export class PaymentIntake {
  readonly #reservations: Reservations;
  readonly #resolver: Resolver;
  readonly #facilitator: Facilitator;
  readonly #chain: Chain;
  readonly #asset: Asset;
  readonly #log: FastifyBaseLogger;

  constructor(parts: IntakeParts) {
    this.#reservations = parts.reservations;
    this.#resolver = parts.resolver;
    this.#facilitator = parts.facilitator;
    this.#chain = parts.chain;
    this.#asset = parts.asset;
    this.#log = parts.log;
  }

  /** The payment that an earlier request made under this identifier; undefined when there is none that counts. */
  async find(request: PaymentRequest): Promise<KnownPayment | undefined> {
    const payment = await this.#reservations.find(request.envelope.identifier);
    const status = payment && (await this.#status(payment, requestHash(request), request.traceId));
    return payment && status && { outcome: 'known', payment, status };
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
    const { envelope, offers, resource, traceId } = request;
    const { identifier } = envelope;
    const hash = requestHash(request);
    const known = await this.#reservations.find(identifier);
    const status = known && (await this.#status(known, hash, traceId));
    if (known && status) return { outcome: 'known', payment: known, status };

    const offer = findOffer(offers, envelope.accepted);
    if (!offer) return refused('PAYMENT_REQUIRED', 'accepted_is_no_offer');
    const breach = breachOf(envelope, offer);
    if (breach) return refused('PAYMENT_REQUIRED', breach);
    const verifiable = { envelope, offer, resource };
    const proof = await this.#prove(purpose, verifiable, known);
    if (proof.outcome === 'refused') return proof;
    const refusal = refuseNew();
    if (refusal) return refusal;

    const headBlock = await this.#head();
    if (headBlock === undefined) return refused('PAYMENT_ERROR', 'chain_unreachable');
    const reserve = () =>
      this.#reservations.reserve({
        purpose,
        identifier,
        requestHash: hash,
        claim: claimOf(envelope),
        headBlock,
        traceId,
      });
    let payment = known ? await this.#reservations.takeOver(known, headBlock) : await reserve();
    const winner = payment ? undefined : await this.#reservations.find(identifier);
    // Without a winner, the authorization belongs to another identifier, or the winner was released a moment ago.
    if (!winner) payment ??= await reserve();
    if (payment) return { outcome: 'reserved', payment, verifiable, isVerified: proof.isVerified };
    if (!winner) return AUTHORIZATION_TAKEN;
    const first =
      (await this.#status(winner, hash, traceId)) ?? refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
    return { outcome: 'known', payment: winner, status: first };
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
    if (refusal) await this.release(payment);
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

  /**
   * Whether the payment is its payer's, or why it is refused. That a contract's authorization belongs to another payment
   * is looked up before the facilitator is asked (R45).
   */
  async #prove(
    purpose: PaymentPurpose,
    verifiable: FacilitatorPayment,
    abandoned: Payment | undefined,
  ): Promise<
    | { readonly outcome: 'proved'; readonly isVerified: boolean }
    | Refused<'PAYMENT_REQUIRED' | 'PAYMENT_ERROR' | 'PAYMENT_IDENTIFIER_CONFLICT'>
  > {
    const { envelope } = verifiable;
    // A deposit that is not signed by the key of its payer does not get here (R35).
    if (purpose === 'deposit' || isSignedByPayer(envelope, this.#asset))
      return { outcome: 'proved', isVerified: false };
    try {
      if (!(await this.#chain.hasCode(envelope.authorization.from))) {
        return refused('PAYMENT_REQUIRED', 'invalid_signature');
      }
      if (!abandoned && (await this.#reservations.isAuthorizationTaken(claimOf(envelope)))) return AUTHORIZATION_TAKEN;
      const verification = await this.#facilitator.verify(verifiable);
      return verification.valid
        ? { outcome: 'proved', isVerified: true }
        : refused('PAYMENT_REQUIRED', verification.reason);
    } catch (error) {
      return this.#unverifiable(error);
    }
  }

  /** The refusal when facilitator or chain can't be asked; throws any other error on. */
  #unverifiable(error: unknown): Refused<'PAYMENT_ERROR'> {
    if (!(error instanceof FacilitatorError || error instanceof RpcError)) throw error;
    this.#log.warn({ err: error }, 'a payment could not be verified');
    return refused('PAYMENT_ERROR', 'payment_service_failed');
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

  async #check({ payment, verifiable, isVerified }: Reserved) {
    const exposure = await this.#reservations.exposure(payment);
    if (exposure.hasFailedLately && exposure.running > 0) return refused('RATE_LIMITED', 'one_at_a_time_after_failure');
    const [verification, canPay] = await Promise.all([
      isVerified ? VALID : this.#facilitator.verify(verifiable),
      isSolvent({ chain: this.#chain, reservations: this.#reservations }, payment, exposure),
    ]);
    if (!verification.valid) return refused('PAYMENT_REQUIRED', verification.reason);
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

const VALID = { valid: true } as const;
/** R22. */
const AUTHORIZATION_TAKEN = refused('PAYMENT_IDENTIFIER_CONFLICT', 'authorization_of_another_payment');
