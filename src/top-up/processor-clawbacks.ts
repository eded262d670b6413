import type Stripe from 'stripe';
import { callProcessor, findOrUndefined, idOf, PAGE_SIZE, ProcessorError } from './processor-call.ts';

/** In the metadata of refunds that were asked for here. */
const REFUND_KEY = 'refund_key';

/** A refund or a dispute, as the processor tells it. */
export interface ProcessorClawback {
  readonly id: string;
  readonly kind: ClawbackKind;
  /** Of the purchase; null where the processor names none. */
  readonly paymentIntentId: string | null;
  readonly chargeId: string | null;
  readonly amountCents: number;
  readonly currency: string;
  /** `unknown` where the processor tells none. */
  readonly status: string;
  /** Its balance transactions have taken the money, and have not given it back. */
  readonly isWithdrawn: boolean;
  /** Unix seconds. */
  readonly created: number;
}

/** One that can't be booked, since the processor does not tell what that takes. */
export interface UnusableClawback extends Pick<ProcessorClawback, 'id' | 'kind' | 'paymentIntentId'> {
  readonly fault: string;
}

export type ListedClawback = ProcessorClawback | UnusableClawback;

export const isUsable = (listed: ListedClawback): listed is ProcessorClawback => !('fault' in listed);

export type ClawbackKind = 'refund' | 'dispute';

export interface ClawbackPage {
  readonly clawbacks: readonly ListedClawback[];
  /** True when older ones follow. */
  readonly hasMore: boolean;
}

/** The processor's refunds and disputes. */
export class ProcessorClawbacks {
  readonly #stripe: Stripe;

  constructor(stripe: Stripe) {
    this.#stripe = stripe;
  }

  /**
   * One page of them, newest first. A compatible server that has no such list has none of them.
   * @param createdFrom Unix seconds
   * @param after the last one of the page before
   */
  async list(kind: ClawbackKind, createdFrom: number, after?: string): Promise<ClawbackPage> {
    const asked = {
      created: { gte: createdFrom },
      limit: PAGE_SIZE,
      ...(after !== undefined && { starting_after: after }),
    };
    const request = () => (kind === 'refund' ? this.#stripe.refunds.list(asked) : this.#stripe.disputes.list(asked));
    const page = after === undefined ? await findOrUndefined<Page>(request) : await callProcessor<Page>(request);
    if (!page) return { clawbacks: [], hasMore: false };
    if (!Array.isArray(page.data) || !page.data.every((each) => typeof each?.id === 'string'))
      throw new ProcessorError(`the processor answered without a list of ${kind}s`);
    const clawbacks = page.data.map((each) => read(kind, each));
    return { clawbacks, hasMore: page.has_more === true && clawbacks.length > 0 };
  }

  /** As the processor knows it now; undefined when it knows none of that id. */
  async find(kind: ClawbackKind, id: string): Promise<ProcessorClawback | undefined> {
    const found = await findOrUndefined<Stripe.Refund | Stripe.Dispute>(() =>
      kind === 'refund' ? this.#stripe.refunds.retrieve(id) : this.#stripe.disputes.retrieve(id),
    );
    if (found !== undefined && found?.id !== id) throw new ProcessorError(`the processor answered without the ${kind}`);
    return found && readUsable(kind, found);
  }

  /**
   * Pays a purchase back to its card.
   * @param amountCents undefined for all that is left of it
   * @param key a repetition with the same one makes no second refund, as long as the processor remembers it: a day
   */
  async refund(paymentIntentId: string, amountCents: number | undefined, key: string): Promise<ProcessorClawback> {
    const refund = await callProcessor(() =>
      this.#stripe.refunds.create(
        {
          payment_intent: paymentIntentId,
          metadata: { [REFUND_KEY]: key },
          ...(amountCents !== undefined && { amount: amountCents }),
        },
        { idempotencyKey: key },
      ),
    );
    return readUsable('refund', refund);
  }

  /** The refund of a purchase that was made with this key, however long ago; undefined when there is none, or no list of them. */
  async findRefund(paymentIntentId: string, key: string): Promise<ProcessorClawback | undefined> {
    return findOrUndefined(async () => {
      const refunds = this.#stripe.refunds.list({ payment_intent: paymentIntentId, limit: PAGE_SIZE });
      for await (const refund of refunds)
        if (refund.metadata?.[REFUND_KEY] === key) return readUsable('refund', refund);
      return undefined;
    });
  }
}

type Page = Pick<Stripe.ApiList<Stripe.Refund | Stripe.Dispute>, 'data' | 'has_more'>;

/** The largest amount that the ledger's column holds. */
const MAX_AMOUNT = 2 ** 31 - 1;
const STATUS = /^[a-z_]{1,50}$/;

function read(kind: ClawbackKind, told: Stripe.Refund | Stripe.Dispute): ListedClawback {
  const { id, status, amount: amountCents, currency, created } = told;
  const paymentIntentId = idOf(told.payment_intent);
  const fault = faultOf(told);
  if (fault) return { id, kind, paymentIntentId, fault };
  return {
    ...{ id, kind, amountCents, currency, created, paymentIntentId },
    status: status !== null && STATUS.test(status) ? status : 'unknown',
    isWithdrawn:
      kind === 'refund' ? isRefundWithdrawn(told as Stripe.Refund) : isDisputeWithdrawn(told as Stripe.Dispute),
    chargeId: idOf(told.charge),
  };
}

function readUsable(kind: ClawbackKind, told: Stripe.Refund | Stripe.Dispute): ProcessorClawback {
  const clawback = read(kind, told);
  if (typeof told.id === 'string' && isUsable(clawback)) return clawback;
  throw new ProcessorError(`the processor answered without a usable ${kind}`);
}

function faultOf({ amount, currency, created }: Stripe.Refund | Stripe.Dispute): string | undefined {
  if (!Number.isSafeInteger(amount) || amount <= 0 || amount > MAX_AMOUNT) return 'no usable amount';
  if (typeof currency !== 'string') return 'no currency';
  return Number.isSafeInteger(created) ? undefined : 'no time';
}

const isRefundWithdrawn = ({ balance_transaction, failure_balance_transaction }: Stripe.Refund): boolean =>
  Boolean(balance_transaction) && !failure_balance_transaction;

const isDisputeWithdrawn = ({ balance_transactions }: Stripe.Dispute): boolean =>
  (balance_transactions ?? []).reduce((sum, { amount }) => sum + amount, 0) < 0;
