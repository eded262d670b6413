import Stripe from 'stripe';

const TIMEOUT_MS = 10_000;
const RETRIES = 2;

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

/** The processor refused, could not be reached, or answered something unusable. */
export class ProcessorError extends Error {}

/** The card processor's hosted checkout, through its own SDK. */
export class Processor {
  readonly #stripe: Stripe;
  /** Whether the key is a live one: sessions of the other mode are foreign (R16). */
  readonly livemode: boolean;

  /** @param apiBase origin of a compatible server; the processor's own when undefined */
  constructor(secretKey: string, apiBase: string | undefined) {
    const base = apiBase ? new URL(apiBase) : undefined;
    this.livemode = secretKey.includes('_live_');
    this.#stripe = new Stripe(secretKey, {
      timeout: TIMEOUT_MS,
      maxNetworkRetries: RETRIES,
      telemetry: false,
      ...(base && {
        host: base.hostname,
        port: base.port || (base.protocol === 'https:' ? '443' : '80'),
        protocol: base.protocol === 'https:' ? 'https' : 'http',
      }),
    });
  }

  /** Opens a session; repeating it with the same topUpId opens no second one. */
  async openCheckout(request: CheckoutRequest): Promise<{ sessionId: string; url: string }> {
    const session = await this.#call(() =>
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
    // The SDK passes a 4xx without an error member on as if it were a session.
    if (typeof session.id !== 'string' || !session.url || !URL.canParse(session.url)) {
      throw new ProcessorError('the processor answered without a usable session');
    }
    return { sessionId: session.id, url: session.url };
  }

  /** The session as the processor knows it; undefined when it knows none of that id. */
  async findSession(sessionId: string): Promise<Stripe.Checkout.Session | undefined> {
    try {
      return await this.#call(() => this.#stripe.checkout.sessions.retrieve(sessionId));
    } catch (error) {
      if (error instanceof ProcessorError && (error.cause as { statusCode?: number })?.statusCode === 404)
        return undefined;
      throw error;
    }
  }

  async #call<T>(request: () => Promise<T>): Promise<T> {
    try {
      return await request();
    } catch (error) {
      throw new ProcessorError('the call to the card processor failed', { cause: error });
    }
  }
}
