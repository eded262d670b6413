import type { FastifyBaseLogger } from 'fastify';
import { isUnavailable } from '../db/errors.ts';
import type { Chain, TransferClaim } from '../x402/chain.ts';
import type { PaymentEnvelope } from '../x402/envelope.ts';
import type { Facilitator, FacilitatorPayment } from '../x402/facilitator.ts';
import { MAX_TIMEOUT_SECONDS, type Offer } from '../x402/offer.ts';
import type { Address } from '../x402/payees.ts';
import { type Payment, type Payments, REPLAY_WINDOW_SECONDS, type Reservation } from '../x402/payment.ts';
import type { Resolution, Resolver } from '../x402/resolver.ts';
import { RpcError } from '../x402/rpc.ts';

export type PaymentRefusalCode =
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_IDENTIFIER_CONFLICT'
  | 'PAYMENT_REPLAY_PENDING'
  | 'PAYMENT_OUTCOME_UNKNOWN'
  | 'PAYMENT_ERROR'
  | 'REPLAY_CACHE_UNAVAILABLE'
  | 'RATE_LIMITED'
  | 'TTS_UNAVAILABLE';

/** Why a payment buys nothing now. */
export interface PaymentRefusal {
  readonly code: PaymentRefusalCode;
  /** For programs, such as insufficient_funds. */
  readonly reason: string;
  readonly message: string;
}

/** With less left of an authorization no payment is begun (R28). */
const MIN_SECONDS_LEFT = 15;
/** Beyond what a challenge asks for, an authorization may be valid this much longer (R28). */
const MAX_SECONDS_AHEAD = MAX_TIMEOUT_SECONDS + 60;
/** A payer's balance is read again when his other payments ended meanwhile. */
const SOLVENCY_ATTEMPTS = 3;

export interface IntakeParts {
  readonly payments: Payments;
  readonly resolver: Resolver;
  readonly facilitator: Facilitator;
  readonly chain: Chain;
  readonly log: FastifyBaseLogger;
}

/** What every payment by an on-chain authorization goes through before it may be settled (R21b, R24, R45). */
export class PaymentIntake {
  readonly #payments: Payments;
  readonly #resolver: Resolver;
  readonly #facilitator: Facilitator;
  readonly #chain: Chain;
  readonly #log: FastifyBaseLogger;

  constructor(parts: IntakeParts) {
    this.#payments = parts.payments;
    this.#resolver = parts.resolver;
    this.#facilitator = parts.facilitator;
    this.#chain = parts.chain;
    this.#log = parts.log;
  }

  /** Reserves identifier and authorization, or takes an abandoned reservation of the same request over (R26). */
  async reserve(
    reservation: Omit<Reservation, 'headBlock'>,
    abandoned: Payment | undefined,
  ): Promise<
    | { readonly outcome: 'reserved'; readonly payment: Payment }
    | { readonly outcome: 'refused'; readonly refusal: PaymentRefusal }
    /** Somebody else was first with this identifier. */
    | { readonly outcome: 'taken'; readonly winner: Payment }
  > {
    let headBlock: bigint;
    try {
      headBlock = await this.#chain.head();
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      this.#log.warn({ err: error }, 'the chain could not be asked for its head');
      return refused('PAYMENT_ERROR', 'chain_unreachable');
    }
    const payment = abandoned
      ? await this.#payments.takeOver(abandoned, headBlock)
      : await this.#payments.reserve({ ...reservation, headBlock });
    if (payment) return { outcome: 'reserved', payment };
    const winner = await this.#payments.find(reservation.identifier);
    if (!winner) return refused('PAYMENT_IDENTIFIER_CONFLICT', 'authorization_of_another_payment');
    return { outcome: 'taken', winner };
  }

  /** What speaks against the reserved payment: its payer's other payments, the facilitator, or his balance. */
  async check(payment: Payment, request: FacilitatorPayment): Promise<ReturnType<typeof refused> | undefined> {
    const exposure = await this.#payments.exposure(payment);
    if (exposure.hasFailedLately && exposure.running > 0) return refused('RATE_LIMITED', 'one_at_a_time_after_failure');
    const [verification, isSolvent] = await Promise.all([
      this.#facilitator.verify(request),
      this.#isSolvent(payment, exposure.unsettled),
    ]);
    if (!verification.valid) return refused('PAYMENT_REQUIRED', verification.reason);
    return isSolvent ? undefined : refused('PAYMENT_REQUIRED', 'insufficient_funds');
  }

  /**
   * Whether the payer's balance covers his earlier unsettled payments and this one (R21b). The sum is read before the
   * balance; when it is smaller afterwards, a payment was settled in between and both are read again.
   */
  async #isSolvent(payment: Payment, unsettledBefore: bigint): Promise<boolean> {
    const { payer, amount } = payment.claim;
    let unsettled = unsettledBefore;
    for (let attempt = 1; ; attempt++) {
      const balance = await this.#chain.balanceOf(payer);
      if (balance >= unsettled + amount) return true;
      if (attempt === SOLVENCY_ATTEMPTS) return false;
      const now = (await this.#payments.exposure(payment)).unsettled;
      if (now === unsettled) return false;
      unsettled = now;
    }
  }

  /** A node that gives no answer leaves the payment as doubtful as it was. */
  async resolve(payment: Payment): Promise<Resolution> {
    try {
      return await this.#resolver.resolve(payment);
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      this.#log.warn({ err: error, payment: payment.id }, 'the chain could not be asked about a payment');
      return { outcome: 'open' };
    }
  }

  /** When the database is away, the reservation ends with its lease. */
  async release(payment: Payment): Promise<void> {
    try {
      await this.#payments.release(payment);
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.#log.warn({ err: error }, 'a reservation could not be released now; it ends with its lease');
    }
  }
}

/** What an authorization claims to transfer. */
export const claimOf = ({ authorization }: PaymentEnvelope): TransferClaim => ({
  payer: authorization.from,
  nonce: authorization.nonce,
  payTo: authorization.to,
  amount: authorization.value,
  validBefore: authorization.validBefore,
});

/** Why an authorization is not the one that the offer asks for, or is not valid for long enough or for too long (R28). */
export function misfitOf({ authorization }: PaymentEnvelope, offer: Offer): string | undefined {
  if (authorization.to !== (offer.payTo.toLowerCase() as Address)) return 'authorization_to_another_payee';
  if (authorization.value !== BigInt(offer.amount)) return 'authorization_of_another_amount';
  const now = BigInt(Math.floor(Date.now() / 1000));
  if (authorization.validAfter > now) return 'authorization_not_yet_valid';
  if (authorization.validBefore < now + BigInt(MIN_SECONDS_LEFT)) return 'authorization_expires_too_soon';
  return authorization.validBefore > now + BigInt(MAX_SECONDS_AHEAD) ? 'authorization_valid_for_too_long' : undefined;
}

const MESSAGES: Record<PaymentRefusalCode, string> = {
  PAYMENT_REQUIRED: 'The payment is refused. Sign the challenge in PAYMENT-REQUIRED and send it with a new identifier.',
  PAYMENT_IDENTIFIER_CONFLICT:
    'This payment identifier or authorization belongs to another request. Make a new payment.',
  PAYMENT_REPLAY_PENDING: 'The first request with this payment is still running. Repeat the identical request later.',
  PAYMENT_OUTCOME_UNKNOWN:
    'Whether this payment was settled is not known yet. Repeat the identical request later; make no new payment ' +
    "without the user's approval.",
  PAYMENT_ERROR: 'The payment could not be verified now. Nothing was settled; repeat the identical request.',
  REPLAY_CACHE_UNAVAILABLE: 'The audio can not be stored or read now. Nothing was settled by this request; repeat it.',
  RATE_LIMITED: 'A settlement of this payer failed lately: one request at a time. Repeat it once the other has ended.',
  TTS_UNAVAILABLE: 'Too much speech waits for its settlement. Nothing was settled; repeat the request later.',
};

/** What is told for a reason that the code's message does not fit. */
const SPECIAL: Record<string, string> = {
  replay_window_over: `This payment was used, and its replay window of ${REPLAY_WINDOW_SECONDS} seconds is over.`,
  not_confirmed_yet: 'The transfer is not confirmed yet. It is credited without you; repeat the request to see it.',
};

export const refused = (code: PaymentRefusalCode, reason: string) => ({
  outcome: 'refused' as const,
  refusal: { code, reason, message: SPECIAL[reason] ?? MESSAGES[code] },
});
