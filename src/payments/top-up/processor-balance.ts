import type Stripe from 'stripe';
import { callProcessor, findOrUndefined, idOf, PAGE_SIZE, ProcessorError } from './processor-call.ts';

export interface BalanceEntry {
  readonly id: string;
  readonly category: string;
  readonly amountCents: number;
  readonly feeCents: number;
  readonly at: Date;
  readonly source: string | null;
  readonly paymentIntentId: string | null;
}

export class ProcessorBalance {
  readonly #stripe: Stripe;

  constructor(stripe: Stripe) {
    this.#stripe = stripe;
  }

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
      if (!Array.isArray(page?.data))
        throw new ProcessorError('the card processor returned no valid balance transactions');
      yield* page.data.map(read);
      after = page.data.at(-1)?.id;
      if (!page.has_more || after === undefined) return;
    }
  }

  async lastChangeBy(source: string): Promise<Date | undefined> {
    const page = await findOrUndefined(() => this.#stripe.balanceTransactions.list({ source, limit: 1 }));
    const [entry] = page?.data ?? [];
    return entry && new Date(entry.created * 1000);
  }

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
    id,
    category: reporting_category ?? type,
    amountCents: amount,
    feeCents: fee ?? 0,
    at: new Date(created * 1000),
    source: idOf(source),
    paymentIntentId: about && 'payment_intent' in about ? idOf(about.payment_intent) : null,
  };
}
