import type Stripe from 'stripe';
import { callProcessor, findOrUndefined, idOf, PAGE_SIZE, ProcessorError } from './processor-call.ts';

const REFUND_KEY = 'refund_key';

export interface ProcessorClawback {
  readonly id: string;
  readonly kind: ClawbackKind;
  readonly paymentIntentId: string | null;
  readonly chargeId: string | null;
  readonly amountCents: number;
  readonly currency: string;
  readonly status: string;
  /** Balance transactions have taken the money and not returned it. */
  readonly isWithdrawn: boolean;
  readonly created: number;
}

/** An entry that can't be booked, because amount, currency or time is unusable. */
interface UnusableClawback extends Pick<ProcessorClawback, 'id' | 'kind' | 'paymentIntentId'> {
  readonly fault: string;
}

export type ListedClawback = ProcessorClawback | UnusableClawback;

export const isUsable = (listed: ListedClawback): listed is ProcessorClawback => !('fault' in listed);

export type ClawbackKind = 'refund' | 'dispute';

export class ProcessorClawbacks {
  readonly #stripe: Stripe;

  constructor(stripe: Stripe) {
    this.#stripe = stripe;
  }

  /** One page, newest first; empty if a compatible server has no such list. @param createdFrom Unix seconds */
  async list(
    kind: ClawbackKind,
    createdFrom: number,
    after?: string,
  ): Promise<{ readonly entries: readonly ListedClawback[]; readonly hasMore: boolean }> {
    const begin = after === undefined ? {} : { starting_after: after };
    const asked = { created: { gte: createdFrom }, limit: PAGE_SIZE, ...begin };
    const request = () => (kind === 'refund' ? this.#stripe.refunds.list(asked) : this.#stripe.disputes.list(asked));
    const page = after === undefined ? await findOrUndefined<Page>(request) : await callProcessor<Page>(request);
    if (!page) return { entries: [], hasMore: false };
    if (!Array.isArray(page.data) || !page.data.every((each) => typeof each?.id === 'string'))
      throw new ProcessorError(
        `the card processor returned no valid list of ${kind}s, so nothing from this list was booked`,
      );
    const entries = page.data.map((each) => read(kind, each));
    return { entries, hasMore: page.has_more === true && entries.length > 0 };
  }

  async find(kind: ClawbackKind, id: string): Promise<ProcessorClawback | undefined> {
    const found = await findOrUndefined<Stripe.Refund | Stripe.Dispute>(() =>
      kind === 'refund' ? this.#stripe.refunds.retrieve(id) : this.#stripe.disputes.retrieve(id),
    );
    if (found !== undefined && found?.id !== id)
      throw new ProcessorError(
        `the card processor returned another ${kind} than the one that was requested, so nothing was booked`,
      );
    return found && readUsable(kind, found);
  }

  /** Refunds a purchase to its card. @param key prevents a second refund while the processor remembers it: a day */
  async refund(paymentIntentId: string, amountCents: number | undefined, key: string): Promise<ProcessorClawback> {
    const amount = amountCents === undefined ? {} : { amount: amountCents };
    const asked = { payment_intent: paymentIntentId, metadata: { [REFUND_KEY]: key }, ...amount };
    const refund = await callProcessor(() => this.#stripe.refunds.create(asked, { idempotencyKey: key }));
    return readUsable('refund', refund);
  }

  /** Finds the refund of a purchase that was made with this key, however long ago; undefined if there is none. */
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

const MAX_AMOUNT = 2 ** 31 - 1;
const STATUS = /^[a-z_]{1,50}$/;

function read(kind: ClawbackKind, object: Stripe.Refund | Stripe.Dispute): ListedClawback {
  const { id, status, amount: amountCents, currency, created } = object;
  const paymentIntentId = idOf(object.payment_intent);
  const fault = faultOf(object);
  if (fault) return { id, kind, paymentIntentId, fault };
  return {
    id,
    kind,
    paymentIntentId,
    chargeId: idOf(object.charge),
    amountCents,
    currency,
    status: status !== null && STATUS.test(status) ? status : 'unknown',
    isWithdrawn:
      kind === 'refund' ? isRefundWithdrawn(object as Stripe.Refund) : isDisputeWithdrawn(object as Stripe.Dispute),
    created,
  };
}

function readUsable(kind: ClawbackKind, object: Stripe.Refund | Stripe.Dispute): ProcessorClawback {
  const clawback = read(kind, object);
  if (typeof object.id === 'string' && isUsable(clawback)) return clawback;
  throw new ProcessorError(
    `the card processor returned a ${kind} without a valid id, amount, currency or time, so it was not booked; its money may have moved`,
  );
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
