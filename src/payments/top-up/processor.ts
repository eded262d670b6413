import type Stripe from 'stripe';
import { isLiveKey } from '../../config/card-settings.ts';
import type { CredentialAlarm, OutsideCalls } from '../../observability/outside.ts';
import { ProcessorBalance } from './processor-balance.ts';
import { callProcessor, findOrUndefined, idOf, PAGE_SIZE, ProcessorError } from './processor-call.ts';
import { ProcessorClawbacks } from './processor-clawbacks.ts';
import { stripeClient } from './stripe-client.ts';

const RETRIES = 2;
const MOST_OF_EMAIL = 1_000;
const SESSION_ID = /^[A-Za-z0-9_-]{1,255}$/;

/** Whether the processor may have made the text. Only such sessions are looked up or stored. */
export const isSessionId = (text: unknown): text is string => typeof text === 'string' && SESSION_ID.test(text);

interface CheckoutRequest {
  readonly topUpId: string;
  readonly accountId: string;
  readonly challengeId: string | null;
  readonly instanceId: string;
  readonly amountCents: number;
  readonly productName: string;
  readonly successUrl: string;
  readonly cancelUrl: string;
}

export interface ProcessorOptions {
  readonly retries?: number;
  /** Checkout pages may use plain http only if this origin does. */
  readonly checkoutOrigin?: string;
  readonly onRefused?: CredentialAlarm;
  readonly calls?: OutsideCalls;
  /** Stripe Tax adds tax to the price at the checkout. */
  readonly automaticTax?: boolean;
}

/** What a session's credit costs, and the tax beside it. */
export interface PurchaseAmounts {
  readonly amountCents: number;
  readonly taxCents: number;
}

export function amountsOf({ amount_total, total_details }: Stripe.Checkout.Session): PurchaseAmounts {
  const taxCents = total_details?.amount_tax ?? 0;
  return { amountCents: (amount_total ?? 0) - taxCents, taxCents };
}

/** The part of a charge, refund or dispute that is credit and no tax. Rounded down: all parts never exceed the credit. */
export function creditPart(cents: number, { amountCents, taxCents }: PurchaseAmounts): number {
  if (taxCents === 0) return cents;
  const part = Math.max(1, Math.floor((Math.abs(cents) * amountCents) / (amountCents + taxCents)));
  return Math.sign(cents) * part;
}

export class Processor {
  readonly #stripe: Stripe;
  readonly #pageProtocols: readonly string[];
  readonly #hasTax: boolean;
  /** Whether the key is live. Sessions of the other mode are foreign (R16). */
  readonly livemode: boolean;
  readonly clawbacks: ProcessorClawbacks;
  readonly balance: ProcessorBalance;

  constructor(secretKey: string, apiBase: string | undefined, options: ProcessorOptions = {}) {
    this.#pageProtocols = options.checkoutOrigin?.startsWith('http:') ? ['http:', 'https:'] : ['https:'];
    this.#hasTax = options.automaticTax === true;
    this.livemode = isLiveKey(secretKey);
    this.#stripe = stripeClient(secretKey, apiBase, options.retries ?? RETRIES, options.calls);
    this.#stripe.on('response', ({ status }: Stripe.ResponseEvent) => {
      if (status === 401 || status === 403) options.onRefused?.();
    });
    this.clawbacks = new ProcessorClawbacks(this.#stripe);
    this.balance = new ProcessorBalance(this.#stripe);
  }

  /** Opens a session that carries the challenge (R46); repeating it with the same topUpId opens no second one. */
  async openCheckout(request: CheckoutRequest): Promise<{ sessionId: string; url: string }> {
    const product_data = { name: request.productName };
    const tax_behavior = this.#hasTax ? ({ tax_behavior: 'exclusive' } as const) : {};
    const price_data = { currency: 'usd', unit_amount: request.amountCents, product_data, ...tax_behavior };
    const asked: Stripe.Checkout.SessionCreateParams = {
      mode: 'payment',
      ...(this.#hasTax && { automatic_tax: { enabled: true } }),
      line_items: [{ quantity: 1, price_data }],
      success_url: request.successUrl,
      cancel_url: request.cancelUrl,
      metadata: {
        instance_id: request.instanceId,
        top_up_id: request.topUpId,
        account_id: request.accountId,
        ...(request.challengeId !== null && { challenge_id: request.challengeId }),
      },
    };
    const options = { idempotencyKey: request.topUpId };
    const session = await callProcessor(() => this.#stripe.checkout.sessions.create(asked, options));
    const url = session.url && URL.canParse(session.url) ? new URL(session.url) : undefined;
    if (!isSessionId(session.id) || !url || !this.#pageProtocols.includes(url.protocol)) {
      throw new ProcessorError(
        'the card processor returned a checkout session without a valid id or URL, so nobody was charged',
      );
    }
    return { sessionId: session.id, url: url.href };
  }

  async findSession(sessionId: string): Promise<Stripe.Checkout.Session | undefined> {
    const session = await findOrUndefined(() => this.#stripe.checkout.sessions.retrieve(sessionId));
    if (session !== undefined && session?.id !== sessionId)
      throw new ProcessorError(
        'the card processor returned another checkout session than the one that was requested, so nothing was credited',
      );
    return session;
  }

  async findSessionOfPayment(paymentIntentId: string): Promise<Stripe.Checkout.Session | undefined> {
    const asked = { payment_intent: paymentIntentId, limit: 1 };
    const { data } = await callProcessor(() => this.#stripe.checkout.sessions.list(asked));
    return data?.find(({ payment_intent }) => idOf(payment_intent) === paymentIntentId);
  }

  /** Whether a payment failed; false if the processor does not say, for example to a key without the right. */
  async hasPaymentFailed(paymentIntentId: string): Promise<boolean> {
    try {
      const { status } = await callProcessor(() => this.#stripe.paymentIntents.retrieve(paymentIntentId));
      return status === 'requires_payment_method' || status === 'canceled';
    } catch (error) {
      if (error instanceof ProcessorError) return false;
      throw error;
    }
  }

  async findSessionsOfEmail(email: string): Promise<readonly Stripe.Checkout.Session[]> {
    const asked = { customer_details: { email }, status: 'complete', limit: PAGE_SIZE } as const;
    return callProcessor(() => this.#stripe.checkout.sessions.list(asked).autoPagingToArray({ limit: MOST_OF_EMAIL }));
  }

  /** One page of the completed sessions, which include the paid ones, newest first. @param createdFrom Unix seconds */
  async listSessions(
    createdFrom: number,
    after?: string,
  ): Promise<{ readonly entries: readonly Stripe.Checkout.Session[]; readonly hasMore: boolean }> {
    const begin = after === undefined ? {} : { starting_after: after };
    const asked = { status: 'complete', created: { gte: createdFrom }, limit: PAGE_SIZE, ...begin } as const;
    const page = await callProcessor(() => this.#stripe.checkout.sessions.list(asked));
    const entries = page?.data;
    if (!Array.isArray(entries) || !entries.every((session) => typeof session?.id === 'string')) {
      throw new ProcessorError(
        'the card processor returned no valid list of checkout sessions, so nothing from this list was credited',
      );
    }
    return { entries, hasMore: page.has_more === true && entries.length > 0 };
  }
}
