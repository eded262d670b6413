import type Stripe from 'stripe';
import type { CredentialAlarm } from '../observability/credential-alarm.ts';
import { isLiveKey } from './live-key.ts';
import { ProcessorBalance } from './processor-balance.ts';
import { callProcessor, findOrUndefined, idOf, PAGE_SIZE, ProcessorError } from './processor-call.ts';
import { ProcessorClawbacks } from './processor-clawbacks.ts';
import { stripeClient } from './stripe-client.ts';

const RETRIES = 2;
/** Sessions of one buyer that are read. */
const MOST_OF_EMAIL = 1_000;
const SESSION_ID = /^[A-Za-z0-9_-]{1,255}$/;

/** True when the processor may have made the text: it is asked for no other session, and no other is stored. */
export const isSessionId = (text: unknown): text is string => typeof text === 'string' && SESSION_ID.test(text);

export interface CheckoutRequest {
  /** Our row's id: metadata of the session, and the call's idempotency key. */
  readonly topUpId: string;
  readonly accountId: string;
  readonly challengeId: string | null;
  readonly instanceId: string;
  readonly amountCents: number;
  readonly productName: string;
  /** Holds the literal {CHECKOUT_SESSION_ID}, which the processor replaces. */
  readonly successUrl: string;
  readonly cancelUrl: string;
}

export interface ProcessorOptions {
  /** How often a call that failed is repeated; a caller that comes again anyway needs none. */
  readonly retries?: number;
  /** Where the hosted checkout lives; buyers are sent over plain http only where this is http. */
  readonly checkoutOrigin?: string;
  /** Told of each answer by which the processor refuses the key. */
  readonly onRefused?: CredentialAlarm;
}

export interface SessionPage {
  readonly sessions: readonly Stripe.Checkout.Session[];
  /** True when older ones follow. */
  readonly hasMore: boolean;
}

/** The card processor's hosted checkout, through its own SDK. */
export class Processor {
  readonly #stripe: Stripe;
  readonly #pageProtocols: readonly string[];
  /** Whether the key is a live one: sessions of the other mode are foreign (R16). */
  readonly livemode: boolean;
  /** Refunds and disputes of what was paid there. */
  readonly clawbacks: ProcessorClawbacks;
  readonly balance: ProcessorBalance;

  /**
   * @param apiBase origin of a compatible server; the processor's own when undefined
   */
  constructor(secretKey: string, apiBase: string | undefined, options: ProcessorOptions = {}) {
    this.#pageProtocols = options.checkoutOrigin?.startsWith('http:') ? ['http:', 'https:'] : ['https:'];
    this.livemode = isLiveKey(secretKey);
    this.#stripe = stripeClient(secretKey, apiBase, options.retries ?? RETRIES);
    this.#stripe.on('response', ({ status }: Stripe.ResponseEvent) => {
      if (status === 401 || status === 403) options.onRefused?.();
    });
    this.clawbacks = new ProcessorClawbacks(this.#stripe);
    this.balance = new ProcessorBalance(this.#stripe);
  }

  /** Opens a session; repeating it with the same topUpId opens no second one. */
  async openCheckout(request: CheckoutRequest): Promise<{ sessionId: string; url: string }> {
    const session = await callProcessor(() =>
      this.#stripe.checkout.sessions.create(
        {
          mode: 'payment',
          line_items: [
            {
              quantity: 1,
              price_data: {
                currency: 'usd',
                unit_amount: request.amountCents,
                product_data: { name: request.productName },
              },
            },
          ],
          success_url: request.successUrl,
          cancel_url: request.cancelUrl,
          metadata: {
            instance_id: request.instanceId,
            top_up_id: request.topUpId,
            account_id: request.accountId,
            ...(request.challengeId !== null && { challenge_id: request.challengeId }),
          },
        },
        { idempotencyKey: request.topUpId },
      ),
    );
    const url = session.url && URL.canParse(session.url) ? new URL(session.url) : undefined;
    if (!isSessionId(session.id) || !url || !this.#pageProtocols.includes(url.protocol)) {
      throw new ProcessorError('the processor answered without a usable session');
    }
    return { sessionId: session.id, url: url.href };
  }

  /** The session as the processor knows it; undefined when it knows none of that id. */
  async findSession(sessionId: string): Promise<Stripe.Checkout.Session | undefined> {
    const session = await findOrUndefined(() => this.#stripe.checkout.sessions.retrieve(sessionId));
    if (session !== undefined && session?.id !== sessionId)
      throw new ProcessorError('the processor answered without the session');
    return session;
  }

  /** The session that a payment belongs to; undefined when it is none of a checkout. */
  async findSessionOfPayment(paymentIntentId: string): Promise<Stripe.Checkout.Session | undefined> {
    const { data } = await callProcessor(() =>
      this.#stripe.checkout.sessions.list({ payment_intent: paymentIntentId, limit: 1 }),
    );
    return data?.find(({ payment_intent }) => idOf(payment_intent) === paymentIntentId);
  }

  /** Whether a payment came to nothing, as the processor tells; false when it does not tell, as with a key without the right. */
  async hasPaymentFailed(paymentIntentId: string): Promise<boolean> {
    try {
      const { status } = await callProcessor(() => this.#stripe.paymentIntents.retrieve(paymentIntentId));
      return status === 'requires_payment_method' || status === 'canceled';
    } catch (error) {
      if (error instanceof ProcessorError) return false;
      throw error;
    }
  }

  /** The completed sessions in which this address of mail was given, newest first, at most MOST_OF_EMAIL of them. */
  async findSessionsOfEmail(email: string): Promise<readonly Stripe.Checkout.Session[]> {
    const asked = { customer_details: { email }, status: 'complete', limit: PAGE_SIZE } as const;
    return callProcessor(() => this.#stripe.checkout.sessions.list(asked).autoPagingToArray({ limit: MOST_OF_EMAIL }));
  }

  /**
   * One page of the completed sessions (those with a payment among them), newest first.
   * @param createdFrom Unix seconds
   * @param after the last session of the page before
   */
  async listSessions(createdFrom: number, after?: string): Promise<SessionPage> {
    const page = await callProcessor(() =>
      this.#stripe.checkout.sessions.list({
        status: 'complete',
        created: { gte: createdFrom },
        limit: PAGE_SIZE,
        ...(after !== undefined && { starting_after: after }),
      }),
    );
    const sessions: unknown = page?.data;
    if (!Array.isArray(sessions) || !sessions.every((session) => typeof session?.id === 'string')) {
      throw new ProcessorError('the processor answered without a list of sessions');
    }
    return { sessions, hasMore: page.has_more === true && sessions.length > 0 };
  }
}
