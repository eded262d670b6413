import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import { type AudioStore, StoreError } from '../audio/store.ts';
import { isUnavailable } from '../db/errors.ts';
import { testPoint } from '../test-point.ts';
import type { Chain, TransferClaim } from '../x402/chain.ts';
import type { Resource } from '../x402/challenge.ts';
import type { PaymentEnvelope } from '../x402/envelope.ts';
import { type Facilitator, FacilitatorError, type FacilitatorPayment } from '../x402/facilitator.ts';
import { findOffer, MAX_TIMEOUT_SECONDS, type Offer } from '../x402/offer.ts';
import type { Address } from '../x402/payees.ts';
import { type Payment, type Payments, REPLAY_WINDOW_SECONDS } from '../x402/payment.ts';
import { paymentAudioKey } from '../x402/payment-audio.ts';
import type { Resolution, Resolver } from '../x402/resolver.ts';
import { RpcError } from '../x402/rpc.ts';
import type { Settlement } from '../x402/settlement.ts';
import type { UnsettledWork } from '../x402/unsettled-work.ts';
import type { BufferedHold } from './buffered.ts';

/** A paid request, as far as the payment is concerned. */
export interface DirectRequest {
  readonly method: string;
  /** Path and query as they were sent. */
  readonly url: string;
  readonly bytes: Uint8Array;
  readonly envelope: PaymentEnvelope;
  /** What may have been accepted. */
  readonly offers: readonly Offer[];
  readonly resource: Resource;
  /** The longest that a synthesis may take. */
  readonly timeoutMs: number;
}

export type DirectRefusalCode =
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_IDENTIFIER_CONFLICT'
  | 'PAYMENT_REPLAY_PENDING'
  | 'PAYMENT_OUTCOME_UNKNOWN'
  | 'PAYMENT_ERROR'
  | 'REPLAY_CACHE_UNAVAILABLE'
  | 'RATE_LIMITED'
  | 'TTS_UNAVAILABLE';

/** Why a payment buys nothing now. */
export interface DirectRefusal {
  readonly code: DirectRefusalCode;
  /** For programs, such as insufficient_funds. */
  readonly reason: string;
  readonly message: string;
}

/** What a settlement gave: the receipt, or why there is none. */
export type DirectCapture =
  | { readonly outcome: 'settled'; readonly receipt: string }
  | { readonly outcome: 'refused'; readonly refusal: DirectRefusal };

export interface DirectHold extends BufferedHold<DirectCapture> {
  /** What is left for the synthesis before the authorization ends (R28). */
  readonly timeoutMs: number;
}

/** The answer to a request that was made before. */
export type DirectReplay =
  | { readonly outcome: 'replay'; readonly receipt: string; readonly audio: Readable }
  | { readonly outcome: 'refused'; readonly refusal: DirectRefusal };

export type DirectAuthorization = DirectReplay | { readonly outcome: 'held'; readonly hold: DirectHold };

/** With less left of an authorization no synthesis is begun, and it ends this long before the authorization (R28). */
const MIN_SECONDS_LEFT = 15;
const SETTLE_RESERVE_MS = 10_000;
/** Beyond what a challenge asks for, an authorization may be valid this much longer (R28). */
const MAX_SECONDS_AHEAD = MAX_TIMEOUT_SECONDS + 60;
/** A payer's balance is read again when his other payments ended meanwhile. */
const SOLVENCY_ATTEMPTS = 3;

/**
 * Pays an order by one on-chain authorization, which is settled once the audio exists (R21 to R28, R45):
 *
 *     authorize: look the identifier up -> accepted is an offer -> times -> reserve -> verify, and the payer is solvent
 *     capture:   store the audio -> settle
 *     void:      release the reservation
 */
export class DirectPayment {
  readonly #payments: Payments;
  readonly #settlement: Settlement;
  readonly #resolver: Resolver;
  readonly #facilitator: Facilitator;
  readonly #chain: Chain;
  readonly #store: AudioStore;
  readonly #unsettledWork: UnsettledWork;
  readonly #log: FastifyBaseLogger;

  constructor(parts: {
    payments: Payments;
    settlement: Settlement;
    resolver: Resolver;
    facilitator: Facilitator;
    chain: Chain;
    store: AudioStore;
    unsettledWork: UnsettledWork;
    log: FastifyBaseLogger;
  }) {
    this.#payments = parts.payments;
    this.#settlement = parts.settlement;
    this.#resolver = parts.resolver;
    this.#facilitator = parts.facilitator;
    this.#chain = parts.chain;
    this.#store = parts.store;
    this.#unsettledWork = parts.unsettledWork;
    this.#log = parts.log;
  }

  /** The answer to an exact repetition, or to a misuse of its identifier; undefined when the payment is new. */
  async replay(request: DirectRequest): Promise<DirectReplay | undefined> {
    const known = await this.#payments.find(request.envelope.identifier);
    return known && this.#answerKnown(known, requestHash(request));
  }

  async authorize(request: DirectRequest): Promise<DirectAuthorization> {
    const hash = requestHash(request);
    const { envelope, offers, resource } = request;
    const known = await this.#payments.find(envelope.identifier);
    const answer = known && (await this.#answerKnown(known, hash));
    if (answer) return answer;

    const offer = findOffer(offers, envelope.accepted);
    const misfit = offer ? misfitOf(envelope, offer) : 'accepted_is_no_offer';
    if (!offer || misfit) return refused('PAYMENT_REQUIRED', misfit ?? '');
    if (this.#unsettledWork.isFull) return refused('TTS_UNAVAILABLE', 'too_many_unsettled');

    const { from, nonce, value, validBefore } = envelope.authorization;
    const claim = { payer: from, nonce, payTo: envelope.authorization.to, amount: value, validBefore };
    const payment = await this.#reserve(envelope.identifier, hash, claim, known);
    if ('outcome' in payment) return payment;

    testPoint('x402 reserved');
    const endLease = this.#payments.keepLease(payment);
    const release = async () => {
      endLease();
      await this.#release(payment);
    };
    try {
      const refusal = await this.#check(payment, { envelope, offer, resource });
      if (!refusal)
        return { outcome: 'held', hold: this.#hold(payment, { envelope, offer, resource }, request, endLease) };
      await release();
      return refusal;
    } catch (error) {
      await release();
      if (error instanceof FacilitatorError || error instanceof RpcError) {
        this.#log.warn({ err: error }, 'a payment could not be verified');
        return refused('PAYMENT_ERROR', 'payment_service_failed');
      }
      throw error;
    }
  }

  /** Undefined when the row is an abandoned reservation of the same request, which may be taken over (R26). */
  async #answerKnown(known: Payment, hash: Buffer): Promise<DirectReplay | undefined> {
    if (!known.requestHash.equals(hash)) return refused('PAYMENT_IDENTIFIER_CONFLICT', 'identifier_of_another_request');
    switch (known.state) {
      case 'reserved':
        return known.isLeased ? refused('PAYMENT_REPLAY_PENDING', 'first_request_running') : undefined;
      case 'settled':
        return this.#replaySettled(known, known.receipt as string);
      case 'failed':
        return refused('PAYMENT_REQUIRED', known.refusal ?? 'settlement_failed');
      case 'settling':
        if (known.isLeased) return refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
        break;
    }
    const resolution = await this.#resolve(known);
    if (resolution.outcome === 'settled')
      return this.#replaySettled({ ...known, isReplayable: true }, resolution.receipt);
    if (resolution.outcome === 'failed' || known.state === 'refused') {
      return refused('PAYMENT_REQUIRED', known.refusal ?? 'settlement_failed');
    }
    return refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown');
  }

  /** A node that gives no answer leaves the payment as doubtful as it was. */
  async #resolve(payment: Payment): Promise<Resolution> {
    try {
      return await this.#resolver.resolve(payment);
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      this.#log.warn({ err: error, payment: payment.id }, 'the chain could not be asked about a payment');
      return { outcome: 'open' };
    }
  }

  async #replaySettled(payment: Payment, receipt: string): Promise<DirectReplay> {
    if (!payment.isReplayable) return refused('PAYMENT_IDENTIFIER_CONFLICT', 'replay_window_over');
    try {
      const stored = await this.#store.open(paymentAudioKey(payment));
      if (stored) return { outcome: 'replay', receipt, audio: stored.stream };
      this.#log.error({ payment: payment.id }, 'the audio of a settled payment is missing');
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.#log.error({ err: error, payment: payment.id }, 'the audio of a settled payment could not be read');
    }
    return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_readable');
  }

  async #reserve(
    identifier: string,
    requestHash: Buffer,
    claim: TransferClaim,
    abandoned: Payment | undefined,
  ): Promise<Payment | DirectReplay> {
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
      : await this.#payments.reserve({ identifier, requestHash, claim, headBlock });
    if (payment) return payment;
    const winner = await this.#payments.find(identifier);
    if (!winner) return refused('PAYMENT_IDENTIFIER_CONFLICT', 'authorization_of_another_payment');
    return (await this.#answerKnown(winner, requestHash)) ?? refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
  }

  /** What speaks against the reserved payment: its payer's other payments, the facilitator, or his balance. */
  async #check(payment: Payment, request: FacilitatorPayment): Promise<DirectReplay | undefined> {
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

  #hold(payment: Payment, request: FacilitatorPayment, { timeoutMs }: DirectRequest, endLease: () => void): DirectHold {
    const endWork = this.#unsettledWork.begin();
    const leftMs = Number(payment.claim.validBefore) * 1000 - Date.now() - SETTLE_RESERVE_MS;
    const end = (isSettled: boolean) => {
      endLease();
      endWork(isSettled);
    };
    return {
      timeoutMs: Math.min(timeoutMs, leftMs),
      capture: async (audio) => {
        try {
          const captured = await this.#capture(payment, request, audio);
          end(captured.outcome === 'settled');
          return captured;
        } finally {
          end(false);
        }
      },
      void: async () => {
        end(false);
        await this.#release(payment);
      },
    };
  }

  async #capture(payment: Payment, request: FacilitatorPayment, audio: Buffer): Promise<DirectCapture> {
    try {
      await this.#store.put(paymentAudioKey(payment), audio, 'audio/mpeg');
    } catch (error) {
      await this.#release(payment);
      if (!(error instanceof StoreError)) throw error;
      this.#log.error({ err: error }, 'audio could not be stored; its payment was not settled');
      return refused('REPLAY_CACHE_UNAVAILABLE', 'audio_not_stored');
    }
    const settled = await this.#settlement.settle(payment, request);
    switch (settled.outcome) {
      case 'settled':
        return settled;
      case 'refused':
        return refused('PAYMENT_REQUIRED', settled.reason);
      case 'unknown':
        return refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown');
      case 'lost':
        return refused('PAYMENT_REPLAY_PENDING', 'taken_over');
    }
  }

  /** When the database is away, the reservation ends with its lease. */
  async #release(payment: Payment): Promise<void> {
    try {
      await this.#payments.release(payment);
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.#log.warn({ err: error }, 'a reservation could not be released now; it ends with its lease');
    }
  }
}

/** What makes a request the same: method, path, query, body bytes and payload (R22). */
function requestHash({ method, url, bytes, envelope }: DirectRequest): Buffer {
  const hash = createHash('sha256').update(`${method}\0${url}\0${bytes.length}\0`).update(bytes);
  return hash.update(envelope.canonical).digest();
}

/** Why an authorization is not the one that the offer asks for, or is not valid for long enough or for too long (R28). */
function misfitOf({ authorization }: PaymentEnvelope, offer: Offer): string | undefined {
  if (authorization.to !== (offer.payTo.toLowerCase() as Address)) return 'authorization_to_another_payee';
  if (authorization.value !== BigInt(offer.amount)) return 'authorization_of_another_amount';
  const now = BigInt(Math.floor(Date.now() / 1000));
  if (authorization.validAfter > now) return 'authorization_not_yet_valid';
  if (authorization.validBefore < now + BigInt(MIN_SECONDS_LEFT)) return 'authorization_expires_too_soon';
  return authorization.validBefore > now + BigInt(MAX_SECONDS_AHEAD) ? 'authorization_valid_for_too_long' : undefined;
}

const MESSAGES: Record<DirectRefusalCode, string> = {
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

const WINDOW_OVER = `This payment was used, and its replay window of ${REPLAY_WINDOW_SECONDS} seconds is over.`;

const refused = (code: DirectRefusalCode, reason: string) => ({
  outcome: 'refused' as const,
  refusal: { code, reason, message: reason === 'replay_window_over' ? WINDOW_OVER : MESSAGES[code] },
});
