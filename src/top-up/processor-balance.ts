import type Stripe from 'stripe';
import { callProcessor, findOrUndefined, idOf, PAGE_SIZE, ProcessorError } from './processor-call.ts';

/** A change of what the processor holds for its customer, who may sell more than what this service sells. */
export interface BalanceEntry {
  readonly id: string;
  /** The processor's word, such as charge, refund, dispute or payout. */
  readonly category: string;
  /** In cents; below 0 when it was taken. */
  readonly amountCents: number;
  readonly feeCents: number;
  readonly at: Date;
  /** Id of the charge, refund or dispute that it is about; null of others. */
  readonly source: string | null;
  /** Of that. */
  readonly paymentIntentId: string | null;
}

/** The processor's own books of what it holds for its customer. */
export class ProcessorBalance {
  readonly #stripe: Stripe;

  constructor(stripe: Stripe) {
    this.#stripe = stripe;
  }

  /** The entries in US dollars from this time up to that one, newest first. @throws ProcessorError */
  async *entries(from: Date, to: Date): AsyncGenerator<BalanceEntry> {
    for (let after: string | undefined; ; ) {
      const page: Stripe.ApiList<Stripe.BalanceTransaction> = await callProcessor(() =>
        this.#stripe.balanceTransactions.list({
          created: { gte: seconds(from), lt: seconds(to) },
          currency: 'usd',
          expand: ['data.source'],
          limit: PAGE_SIZE,
          ...(after !== undefined && { starting_after: after }),
        }),
      );
      if (!Array.isArray(page?.data)) throw new ProcessorError('the processor answered without its balance');
      yield* page.data.map(read);
      after = page.data.at(-1)?.id;
      if (!page.has_more || after === undefined) return;
    }
  }

  /** When the refund or dispute last changed the balance; undefined when it never did. */
  async lastChangeBy(source: string): Promise<Date | undefined> {
    const page = await findOrUndefined(() => this.#stripe.balanceTransactions.list({ source, limit: 1 }));
    const [entry] = page?.data ?? [];
    return entry && new Date(entry.created * 1000);
  }

  /** When the payment was charged; undefined when there is no such payment, or it was not. */
  async chargedAt(paymentIntentId: string): Promise<Date | undefined> {
    const payment = await findOrUndefined(() =>
      this.#stripe.paymentIntents.retrieve(paymentIntentId, { expand: ['latest_charge'] }),
    );
    const charge = payment?.latest_charge;
    return charge && typeof charge === 'object' ? new Date(charge.created * 1000) : undefined;
  }
}

const seconds = (at: Date): number => Math.floor(at.getTime() / 1000);

function read({ id, type, reporting_category, amount, fee, created, source }: Stripe.BalanceTransaction): BalanceEntry {
  const about = source && typeof source === 'object' ? source : undefined;
  return {
    ...{ id, category: reporting_category ?? type, amountCents: amount, feeCents: fee ?? 0 },
    at: new Date(created * 1000),
    source: idOf(source),
    paymentIntentId: about && 'payment_intent' in about ? idOf(about.payment_intent) : null,
  };
}
