import Stripe from 'stripe';
import { stripeClient } from './stripe-client.ts';

export type KeyAnswer =
  | { readonly outcome: 'works' }
  | { readonly outcome: 'refused' }
  /** The problem holds nothing that the processor wrote. */
  | { readonly outcome: 'unknown'; readonly problem: string };

export interface Permissions {
  /** As the processor's dashboard names them. */
  readonly missing: readonly string[];
  /** Those of which the processor's answer tells nothing. */
  readonly unanswered: readonly string[];
}

/** No session has this id, so that expiring it changes nothing. */
const NO_SESSION = 'cs_test_speechgate_doctor_asks_for_none';
const RETRIES = 1;

/** Finds out what a key of the card processor may do, by calls that read, and one that has nothing to change. */
export class KeyProbe {
  readonly #stripe: Stripe;

  /** @param apiBase origin of a compatible server; the processor's own when undefined */
  constructor(secretKey: string, apiBase: string | undefined) {
    this.#stripe = stripeClient(secretKey, apiBase, RETRIES);
  }

  /** A key that may do nothing at all works too. */
  async works(): Promise<KeyAnswer> {
    const status = await statusOf(() => this.#stripe.checkout.sessions.list({ limit: 1 }));
    if (status === 200 || status === 403) return { outcome: 'works' };
    if (status === 401) return { outcome: 'refused' };
    return { outcome: 'unknown', problem: typeof status === 'number' ? `status ${status}.` : status };
  }

  async permissions(): Promise<Permissions> {
    const { checkout, refunds, disputes } = this.#stripe;
    const probes: readonly [name: string, known: number, call: () => Promise<unknown>][] = [
      ['Checkout Sessions: read', 200, () => checkout.sessions.list({ limit: 1 })],
      ['Checkout Sessions: write', 404, () => checkout.sessions.expire(NO_SESSION)],
      ['Charges and Refunds: read', 200, () => refunds.list({ limit: 1 })],
      ['Disputes: read', 200, () => disputes.list({ limit: 1 })],
    ];
    const answers = await Promise.all(
      probes.map(async ([name, known, call]) => ({ name, known, status: await statusOf(call) })),
    );
    return {
      missing: answers.filter(({ status }) => status === 403).map(({ name }) => name),
      unanswered: answers.filter(({ status, known }) => status !== 403 && status !== known).map(({ name }) => name),
    };
  }
}

/** 200, the status of a refusal, or what kept the processor from answering. */
async function statusOf(call: () => Promise<unknown>): Promise<number | string> {
  try {
    await call();
    return 200;
  } catch (error) {
    if (!(error instanceof Stripe.errors.StripeError)) throw error;
    return error.statusCode ?? `${error.type}.`;
  }
}
