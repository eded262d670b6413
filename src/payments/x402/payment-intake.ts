import type { FastifyBaseLogger } from 'fastify';
import type { Asset } from '../../config/network.ts';
import { isUnavailable } from '../../db/database-errors.ts';
import { testPoint } from '../../lib/test-point.ts';
import { withFullV } from '../../lib/wallet-signature.ts';
import type { Metrics } from '../../observability/metrics.ts';
import { type Refused, refused } from '../refusal.ts';
import type { Chain } from './chain.ts';
import { findOffer, MAX_TIMEOUT_SECONDS, type Offer } from './challenge.ts';
import type { PaymentEnvelope } from './envelope.ts';
import {
  type Facilitator,
  FacilitatorError,
  type FacilitatorPayment,
  type Facilitators,
  facilitatorPayment,
  type Verification,
} from './facilitator.ts';
import type { Payment, PaymentPurpose } from './payment.ts';
import {
  claimOf,
  type KnownPayment,
  type PaymentLookup,
  type PaymentRequest,
  type Reserved,
  requestHash,
  unrecordedPayment,
} from './payment-lookup.ts';
import type { Reservations } from './reservations.ts';
import { RpcError } from './rpc.ts';
import type { VerifiedPayment } from './settlement.ts';
import { FACILITATOR_LACKS_GAS, isSolvent, LACKS_BALANCE, reportLackOfGas } from './solvency.ts';
import { isOfUndeployed, isSignedByPayer } from './transfer-proof.ts';

interface IntakeParts {
  readonly reservations: Reservations;
  readonly lookup: PaymentLookup;
  readonly facilitators: Facilitators;
  readonly chain: Chain;
  readonly asset: Asset;
  readonly metrics: Metrics;
}

/**
 * Checks every payment by an on-chain authorization before it may be settled (R45):
 *
 *     begin: look up the identifier -> accepted is an offer -> payee, amount and times -> the payer has made it
 *            -> reserve identifier and authorization
 *     admit: verify, and check that the payer is solvent; otherwise release
 *
 * Most payments are new, which the reservation shows. So the identifier is looked up only for a refusal. A reservation
 * blocks its identifier and counts against its payer. So it needs the signature of the payer's key or, for a contract
 * (EIP-1271, ERC-6492), the facilitator's verification.
 */
export class PaymentIntake {
  readonly #parts: IntakeParts;

  constructor(parts: IntakeParts) {
    this.#parts = parts;
  }

  /** Reserves identifier and authorization (R21), or takes over an abandoned reservation of the same request (R26). */
  async begin<NewRefusal extends Refused = never>(
    purpose: PaymentPurpose,
    request: PaymentRequest,
    refuseNew: () => NewRefusal | undefined = () => undefined,
  ): Promise<Reserved | KnownPayment | IntakeRefusal | NewRefusal> {
    const begun = await this.#begin(purpose, request, refuseNew);
    return begun.outcome === 'refused' ? this.#unlessUsed(begun, request) : begun;
  }

  async #begin<NewRefusal extends Refused>(
    purpose: PaymentPurpose,
    request: PaymentRequest,
    refuseNew: () => NewRefusal | undefined,
  ): Promise<Reserved | KnownPayment | IntakeRefusal | NewRefusal> {
    const terms = this.#termsOf(purpose, request);
    const isSigned = terms.outcome === 'agreed' && terms.isSignedByKey;
    const first = isSigned ? (refuseNew() ?? (await this.#reserve(purpose, request))) : undefined;
    // The usual end: a new payment by a key.
    if (isSigned && first?.outcome === 'reserved') {
      return { facilitatorRequest: terms.facilitatorRequest, verifiedBy: undefined, log: request.log, ...first };
    }
    const { known, status } = await this.#parts.lookup.findWithStatus(request);
    if (known && status) return { outcome: 'known', payment: known, status };
    if (terms.outcome === 'refused') return terms;
    if (first?.outcome === 'refused') return first;
    // Left: a contract may have signed it, or it is taken, by an abandoned reservation or under another identifier.
    const { facilitatorRequest } = terms;
    let verifiedBy: Facilitator | undefined;
    if (!first) {
      const proved = await this.#proveByContract(facilitatorRequest, known, request.log);
      const refusal = proved.outcome === 'refused' ? proved : refuseNew();
      if (refusal) return refusal;
      if (proved.outcome === 'verified') verifiedBy = proved.facilitator;
    }
    const again = await this.#reserve(purpose, request, known);
    // If a request was faster, its payment is the answer.
    const winner = again.outcome === 'taken' ? await this.#parts.lookup.findWithStatus(request) : undefined;
    // Without a winner, another identifier has the authorization, or the winner was released just now.
    const last = winner && !winner.known ? await this.#reserve(purpose, request) : again;
    if (last.outcome === 'refused') return last;
    if (last.outcome === 'reserved') return { facilitatorRequest, verifiedBy, log: request.log, ...last };
    if (!winner?.known) return (await this.#parts.lookup.refuseTaken(claimOf(request.envelope))) ?? AUTHORIZATION_TAKEN;
    const running = refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
    return { outcome: 'known', payment: winner.known, status: winner.status ?? running };
  }

  /** Releases a payment that is not admitted, also when it throws (R23, R24). */
  async admit(reserved: Reserved): Promise<Admitted | IntakeRefusal | Refused<'RATE_LIMITED'> | TakenOver> {
    let checked: Admitted | IntakeRefusal | Refused<'RATE_LIMITED'>;
    try {
      checked = await this.#check(reserved).catch((error) => unverifiable(error, reserved.log));
    } catch (error) {
      await this.release(reserved);
      throw error;
    }
    if (checked.outcome === 'admitted') return checked;
    testPoint('x402 not admitted');
    const taken = await this.release(reserved);
    if (taken) return taken;
    const { log, facilitatorRequest } = reserved;
    return this.#unlessUsed(checked, { log, envelope: facilitatorRequest.envelope });
  }

  /** A refusal that knows what happened to the money stays as it is. */
  async #unlessUsed<Other extends Refused>(refusal: Other, request: Pick<PaymentRequest, 'envelope' | 'log'>) {
    return (refusal.payment ? undefined : await this.#parts.lookup.refuseUsed(request)) ?? refusal;
  }

  /**
   * Returns a refusal if another request may pay with the authorization: a failover lost the reservation, or its lease
   * expired. While the database is unavailable, nobody can tell (R64).
   */
  async release({ payment, log }: Pick<Reserved, 'payment' | 'log'>): Promise<TakenOver | undefined> {
    try {
      if (await this.#parts.reservations.release(payment)) return undefined;
      return (await this.#parts.lookup.refuseTaken(payment.claim)) && TAKEN_OVER;
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      log.warn(
        { err: error },
        'failed to release the reservation of a payment; the reservation expires by itself. This request was not charged; no action is needed',
      );
      return TAKEN_OVER;
    }
  }

  async #reserve(
    purpose: PaymentPurpose,
    request: PaymentRequest,
    abandoned?: Payment,
  ): Promise<ReservationResult | Refused<'PAYMENT_ERROR' | 'PAYMENT_IDENTIFIER_CONFLICT'>> {
    const { envelope, traceId, usage, log } = request;
    const headBlock = await this.#head(log);
    if (headBlock === undefined) {
      return (await this.#refuseTaken(envelope, abandoned)) ?? refused('PAYMENT_ERROR', 'chain_unreachable');
    }
    const { identifier } = envelope;
    if (abandoned) {
      const payment = await this.#parts.reservations.takeOver(abandoned, headBlock);
      return payment ? { outcome: 'reserved', payment } : TAKEN;
    }
    const claim = claimOf(envelope);
    const reservation = { purpose, identifier, requestHash: requestHash(request), claim, headBlock, traceId, usage };
    const reserved = await this.#parts.reservations.reserve(reservation);
    return reserved ? { outcome: 'reserved', ...reserved } : TAKEN;
  }

  /** The payer's terms. A key's signature gets v 27 or 28. Except for deposits (R35), it may be a contract's (R67). */
  #termsOf(purpose: PaymentPurpose, { envelope, offers, resource }: PaymentRequest) {
    const offer = findOffer(offers, envelope.accepted);
    if (!offer) return refused('PAYMENT_REQUIRED', 'accepted_is_no_offer');
    const breach = validateAuthorization(envelope, offer);
    if (breach) return breach;
    const isSignedByKey = purpose === 'deposit' || isSignedByPayer(envelope, this.#parts.asset);
    const signature = isSignedByKey ? withFullV(envelope.signature) : envelope.signature;
    const facilitatorRequest = facilitatorPayment({ ...envelope, signature }, offer, resource);
    return { outcome: 'agreed' as const, isSignedByKey, facilitatorRequest };
  }

  /** Refuses a payer that is no contract, another payment's authorization (R45), or what the facilitator rejects. */
  async #proveByContract(
    facilitatorRequest: FacilitatorPayment,
    abandoned: Payment | undefined,
    log: FastifyBaseLogger,
  ): Promise<
    | { readonly outcome: 'verified'; readonly facilitator: Facilitator }
    | Refused<'PAYMENT_REQUIRED' | 'PAYMENT_ERROR' | 'PAYMENT_IDENTIFIER_CONFLICT'>
  > {
    const { envelope } = facilitatorRequest;
    try {
      if (!isOfUndeployed(envelope.signature) && !(await this.#parts.chain.hasCode(envelope.authorization.from))) {
        return refused('PAYMENT_REQUIRED', 'invalid_signature');
      }
      const taken = await this.#refuseTaken(envelope, abandoned);
      if (taken) return taken;
      const verification = await this.#parts.facilitators.verify(facilitatorRequest, log);
      if (verification.valid) return { outcome: 'verified', facilitator: verification.facilitator };
      const isCovered = () => isSolvent(this.#parts, { claim: claimOf(envelope) });
      return await this.#invalid(verification, facilitatorRequest, isCovered, log);
    } catch (error) {
      const failure = unverifiable(error, log);
      return (await this.#refuseTaken(envelope, abandoned)) ?? failure;
    }
  }

  /** Refuses another payment's authorization (R22). An abandoned reservation has its own, so there is nothing to refuse. */
  async #refuseTaken(envelope: Pick<PaymentEnvelope, 'authorization'>, abandoned: Payment | undefined) {
    return abandoned ? undefined : this.#parts.lookup.refuseTaken(claimOf(envelope));
  }

  /** A used authorization may have paid this service, in commits that a failover lost. */
  async #invalid(
    { reason, detail, isOfRequest }: Extract<Verification, { valid: false }>,
    { envelope }: FacilitatorPayment,
    isCovered: () => boolean | Promise<boolean>,
    log: FastifyBaseLogger,
  ): Promise<Refused<'PAYMENT_REQUIRED' | 'PAYMENT_ERROR'>> {
    if (reason === LACKS_BALANCE && (await isCovered())) {
      reportLackOfGas(this.#parts.metrics, log, { detail });
      return refused('PAYMENT_ERROR', FACILITATOR_LACKS_GAS);
    }
    log.warn(
      { detail },
      'the facilitator refused a payment, and the caller was not charged by this request. If this repeats, read the reason in the field detail',
    );
    if (isOfRequest) return refused('PAYMENT_ERROR', 'facilitator_refused', { facilitatorReason: reason });
    if (!/nonce_already_used$/.test(reason)) return refused('PAYMENT_REQUIRED', reason);
    return unrecordedPayment(envelope, reason);
  }

  async #check({ payment, log, facilitatorRequest, verifiedBy, ...reserved }: Reserved) {
    const exposure = reserved.exposure ?? (await this.#parts.reservations.exposure(payment));
    if (exposure.failed && exposure.running > 0n) return refused('RATE_LIMITED', 'one_at_a_time_after_failure');
    // The facilitator compares the balance with this payment alone (R21b).
    const isAlone = exposure.unsettled === 0n;
    const isCovered = () => isSolvent(this.#parts, payment, exposure);
    const [verification, canPay] = await Promise.all([
      verifiedBy
        ? { valid: true as const, facilitator: verifiedBy }
        : this.#parts.facilitators.verify(facilitatorRequest, log),
      isAlone || isCovered(),
    ]);
    if (!verification.valid)
      return this.#invalid(verification, facilitatorRequest, isAlone ? isCovered : () => canPay, log);
    if (!canPay) return refused('PAYMENT_REQUIRED', 'insufficient_funds');
    const { facilitator } = verification;
    return { outcome: 'admitted' as const, payment, facilitatorRequest, facilitator, log };
  }

  async #head(log: FastifyBaseLogger): Promise<bigint | undefined> {
    try {
      return await this.#parts.chain.head();
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      log.warn(
        { err: error },
        'failed to read the newest block from a chain node, and this attempt charged nothing. Read err for the cause; check the nodes of X402_RPC_URL if this repeats',
      );
      return undefined;
    }
  }
}

function unverifiable(error: unknown, log: FastifyBaseLogger): Refused<'PAYMENT_ERROR'> {
  if (!(error instanceof FacilitatorError || error instanceof RpcError)) throw error;
  if (error instanceof RpcError)
    log.warn(
      { err: error },
      'failed to check a payment at a chain node, and this attempt charged nothing. Read err for the cause; check the nodes of X402_RPC_URL if this repeats',
    );
  return refused('PAYMENT_ERROR', 'payment_service_failed');
}

type IntakeRefusal = Refused<'PAYMENT_REQUIRED' | 'PAYMENT_ERROR' | 'PAYMENT_IDENTIFIER_CONFLICT'>;

type ReservationResult = ({ readonly outcome: 'reserved' } & Pick<Reserved, 'payment' | 'exposure'>) | typeof TAKEN;
const TAKEN = { outcome: 'taken' } as const;

type TakenOver = Refused<'PAYMENT_REPLAY_PENDING'>;
/** A repetition learns the outcome of the request that has the payment now. */
export const TAKEN_OVER: TakenOver = refused('PAYMENT_REPLAY_PENDING', 'taken_over');

type Admitted = { readonly outcome: 'admitted' } & VerifiedPayment;
/** R22: an authorization pays for one request only. */
const AUTHORIZATION_TAKEN = refused('PAYMENT_IDENTIFIER_CONFLICT', 'authorization_of_another_payment');

/** No payment begins with less time left (R28). */
const MIN_SECONDS_LEFT = 15;
/** What a challenge asks for, and 60 seconds more (R28). */
const MAX_SECONDS_AHEAD = MAX_TIMEOUT_SECONDS + 60;

/** Refuses an authorization that differs from the offer (R45), or is valid for too short or too long (R28). */
function validateAuthorization(
  { authorization }: PaymentEnvelope,
  offer: Offer,
): Refused<'PAYMENT_REQUIRED'> | undefined {
  const { to, value, validAfter, validBefore } = authorization;
  if (to !== offer.payTo.toLowerCase()) return refused('PAYMENT_REQUIRED', 'authorization_to_another_payee');
  if (value !== BigInt(offer.amount)) return refused('PAYMENT_REQUIRED', 'authorization_of_another_amount');
  const now = BigInt(Math.floor(Date.now() / 1000));
  const wrong = (reason: string, name: string, breach: string) => wrongTime(reason, name, breach, now);
  if (validAfter > now) return wrong('authorization_not_yet_valid', 'validAfter', 'is ahead');
  if (validBefore < now + BigInt(MIN_SECONDS_LEFT))
    return wrong('authorization_expires_too_soon', 'validBefore', `is less than ${MIN_SECONDS_LEFT} seconds ahead`);
  if (validBefore > now + BigInt(MAX_SECONDS_AHEAD))
    return wrong('authorization_valid_for_too_long', 'validBefore', `is more than ${MAX_SECONDS_AHEAD} seconds ahead`);
  return undefined;
}

function wrongTime(reason: string, name: string, breach: string, now: bigint): Refused<'PAYMENT_REQUIRED'> {
  const time = new Date(Number(now) * 1000).toISOString();
  const message =
    `authorization.${name} ${breach} of this service's clock (${time}). Check your clock, then sign the challenge ` +
    'again with a validAfter in the past and a validBefore ' +
    `${MAX_TIMEOUT_SECONDS} seconds ahead. You were not charged.`;
  return refused('PAYMENT_REQUIRED', reason, {
    fault: { field: `payload.authorization.${name}`, rule: 'lifetime', message },
  });
}
