import Stripe from 'stripe';
import { PAGE_SIZE } from './processor-call.ts';
import { stripeClient } from './stripe-client.ts';

export type KeyAnswer =
  | { readonly outcome: 'works' }
  | { readonly outcome: 'refused' }
  | { readonly outcome: 'unknown'; readonly problem: string };

/** No session has this id, so expiring it changes nothing. */
const NO_SESSION = 'cs_test_speechgate_doctor_asks_for_none';
const RETRIES = 1;

export class KeyProbe {
  readonly #stripe: Stripe;

  constructor(secretKey: string, apiBase: string | undefined) {
    this.#stripe = stripeClient(secretKey, apiBase, RETRIES);
  }

  async works(): Promise<KeyAnswer> {
    const status = await statusOf(() => this.#stripe.checkout.sessions.list({ limit: 1 }));
    if (status === 200 || status === 403) return { outcome: 'works' };
    if (status === 401) return { outcome: 'refused' };
    return { outcome: 'unknown', problem: typeof status === 'number' ? `status ${status}.` : status };
  }

  /** Its webhook endpoints, or why they are unknown: often the key has no right to list them. */
  async endpoints(): Promise<Stripe.WebhookEndpoint[] | string> {
    try {
      return (await this.#stripe.webhookEndpoints.list({ limit: PAGE_SIZE })).data;
    } catch (error) {
      if (!(error instanceof Stripe.errors.StripeError)) throw error;
      return error.statusCode === undefined ? error.type : `status ${error.statusCode}`;
    }
  }

  async permissions(): Promise<Record<'missing' | 'unanswered', readonly string[]>> {
    const { checkout, refunds, disputes } = this.#stripe;
    const probes: readonly [name: string, known: number, call: () => Promise<unknown>][] = [
      ['Checkout Sessions: read', 200, () => checkout.sessions.list({ limit: 1 })],
      ['Checkout Sessions: write', 404, () => checkout.sessions.expire(NO_SESSION)],
      ['Charges and Refunds: read', 200, () => refunds.list({ limit: 1 })],
      ['Disputes: read', 200, () => disputes.list({ limit: 1 })],
    ];
    const ask = async ([name, known, call]: (typeof probes)[number]) => ({ name, known, status: await statusOf(call) });
    const answers = await Promise.all(probes.map(ask));
    return {
      missing: answers.filter(({ status }) => status === 403).map(({ name }) => name),
      unanswered: answers.filter(({ status, known }) => status !== 403 && status !== known).map(({ name }) => name),
    };
  }
}

async function statusOf(call: () => Promise<unknown>): Promise<number | string> {
  try {
    await call();
    return 200;
  } catch (error) {
    if (!(error instanceof Stripe.errors.StripeError)) throw error;
    return error.statusCode ?? `${error.type}.`;
  }
}
