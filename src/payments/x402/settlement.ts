import type { FastifyBaseLogger } from 'fastify';
import { isUnavailable, retryOnDbUnavailable } from '../../db/database-errors.ts';
import type { UpstreamUsage } from '../../ledger/hold.ts';
import { testPoint } from '../../lib/test-point.ts';
import type { Metrics } from '../../observability/metrics.ts';
import type { Booking } from './book-settlement.ts';
import type { Chain } from './chain.ts';
import type { Facilitator, FacilitatorPayment, SettleAnswer } from './facilitator.ts';
import type { Payment } from './payment.ts';
import type { PaymentStates } from './payment-states.ts';
import type { Reservations } from './reservations.ts';
import { DATABASE_TIMEOUT_MS, type Resolver } from './resolver.ts';
import { RpcError } from './rpc.ts';
import { FACILITATOR_LACKS_GAS, isSolvent, LACKS_BALANCE, reportLackOfGas } from './solvency.ts';

type SettlementOutcome =
  | ({ readonly outcome: 'settled' } & Booking)
  | { readonly outcome: 'refused'; readonly reason: string }
  | { readonly outcome: 'unknown'; readonly transaction: string | undefined }
  | { readonly outcome: 'lost' };

export interface VerifiedPayment {
  readonly payment: Payment;
  readonly facilitatorRequest: FacilitatorPayment;
  /** The one that has verified it. */
  readonly facilitator: Facilitator;
  /** The request's. */
  readonly log: FastifyBaseLogger;
}

interface SettlementOptions {
  readonly upstream?: UpstreamUsage | undefined;
  /** How long the transfer is awaited after settle was answered. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

interface SettlementParts {
  readonly reservations: Reservations;
  readonly states: PaymentStates;
  readonly chain: Chain;
  readonly resolver: Resolver;
  readonly metrics: Metrics;
}

/**
 * Settles a reserved payment, at most once (R21):
 *
 *     reserved -- recorded --> settling -- one settle is sent, by the facilitator that has verified it -->
 *       no transaction, for a reason that excludes one -> refused, the chain is watched
 *       anything else, and the chain proves it in time -> settled
 *       anything else                                  -> unknown, the chain decides (Resolver)
 *
 * `unknown` is 409 PAYMENT_OUTCOME_UNKNOWN. After `settling` no process ever sends it again (R23, R25).
 * The proof of a deposit has to be confirmed (R35), that of speech only included (R44).
 */
export class Settlement {
  readonly #parts: SettlementParts;

  constructor(parts: SettlementParts) {
    this.#parts = parts;
  }

  /** Throws only before a settle is sent, for example while the database is down. */
  async settle(
    { payment, facilitatorRequest, facilitator, log }: VerifiedPayment,
    { upstream, ...wait }: SettlementOptions,
  ): Promise<SettlementOutcome> {
    const { reservations, states, metrics } = this.#parts;
    testPoint('x402 audio stored');
    const isBegun = await retryOnDbUnavailable(DATABASE_TIMEOUT_MS, () =>
      reservations.beginSettling(payment, upstream),
    );
    if (!isBegun) return { outcome: 'lost' };
    testPoint('x402 settling');
    let answer: SettleAnswer | undefined;
    try {
      answer = await facilitator.settle(facilitatorRequest);
      testPoint('x402 settle answered');
      return await this.#record(payment, answer, { log, ...wait });
    } catch (error) {
      // Whatever was thrown, the money may have moved (R62).
      log.error(
        { err: error, payment: payment.id },
        'failed to prove or record a settlement, so money may have moved. The service asks the chain again; no action is needed',
      );
      const transaction = answer?.outcome === 'open' ? answer.transaction : undefined;
      // While the database is down, the payment becomes one in doubt when its lease expires.
      if (!isUnavailable(error)) await states.markUnknown(payment, transaction).catch(() => {});
      metrics.paymentMoved(payment, 'unknown');
      return { outcome: 'unknown', transaction };
    }
  }

  async #record(
    payment: Payment,
    answer: SettleAnswer,
    { log, ...wait }: Omit<SettlementOptions, 'upstream'> & Pick<VerifiedPayment, 'log'>,
  ): Promise<SettlementOutcome> {
    const { states, chain, resolver, metrics } = this.#parts;
    const { id, claim, headBlock } = payment;
    const { detail } = answer;
    if (answer.outcome === 'refused') {
      const isFacilitatorsFault = answer.reason === LACKS_BALANCE && (await this.#isCovered(payment));
      if (isFacilitatorsFault) reportLackOfGas(metrics, log, { payment: id, detail });
      else
        log.warn(
          { payment: id, detail },
          'the facilitator refused to settle a payment, but money may still move. The service asks the chain until the signature expires; no action is needed',
        );
      const reason = isFacilitatorsFault ? FACILITATOR_LACKS_GAS : answer.reason;
      await retryOnDbUnavailable(DATABASE_TIMEOUT_MS, () => states.markRefused(payment, reason));
      testPoint('x402 refused');
      metrics.paymentMoved(payment, 'refused');
      return { outcome: 'refused', reason };
    }
    const needsConfirmation = payment.purpose === 'deposit';
    if (needsConfirmation && answer.transaction) {
      await states.markAwaited(payment, answer.transaction);
      testPoint('deposit awaited');
    }
    const awaited = { claim, headBlock, transaction: answer.transaction, needsConfirmation };
    const found = await chain.awaitTransfer(awaited, wait);
    testPoint('x402 proved');
    const isProved = found && (found.isConfirmed || !needsConfirmation);
    const booking = isProved ? await resolver.book(payment, found.proof) : undefined;
    testPoint('x402 settled');
    if (booking) return { outcome: 'settled', ...booking };
    const transaction = found?.proof.transaction ?? answer.transaction;
    log.warn(
      { payment: id, transaction, detail },
      'it is unknown whether a payment was settled, so money may have moved. The service asks the chain again; no action is needed',
    );
    await retryOnDbUnavailable(DATABASE_TIMEOUT_MS, () => states.markUnknown(payment, transaction));
    testPoint('x402 unknown');
    metrics.paymentMoved(payment, 'unknown');
    return { outcome: 'unknown', transaction };
  }
  /** False if the chain can't be read: then the facilitator is believed. */
  async #isCovered(payment: Payment): Promise<boolean> {
    try {
      return await isSolvent(this.#parts, payment);
    } catch (error) {
      if (error instanceof RpcError) return false;
      throw error;
    }
  }
}
