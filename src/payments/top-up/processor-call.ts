import Stripe from 'stripe';

export const PAGE_SIZE = 100;
export const RATE_LIMITED = 429;

/** Keeps nothing of the processor's text, which may name a session, whose id reveals an account (R40). */
export class ProcessorError extends Error {
  constructor(
    message: string,
    readonly status?: number,
  ) {
    super(message);
    this.name = 'ProcessorError';
  }
}

export async function callProcessor<T>(request: () => Promise<T>): Promise<T> {
  try {
    return await request();
  } catch (error) {
    if (!(error instanceof Stripe.errors.StripeError)) throw error;
    const status = statusOf(error);
    const shown = status === undefined ? '' : ` with status ${status}`;
    throw new ProcessorError(`the call to the card processor failed${shown}: ${error.type}`, status);
  }
}

/** Some 400s refuse nothing: the rate is limited, or the key belongs to an earlier call. */
function statusOf(error: Stripe.errors.StripeError): number | undefined {
  if (error instanceof Stripe.errors.StripeRateLimitError) return RATE_LIMITED;
  return error instanceof Stripe.errors.StripeIdempotencyError ? 409 : error.statusCode;
}

export async function findOrUndefined<T>(request: () => Promise<T>): Promise<T | undefined> {
  try {
    return await callProcessor(request);
  } catch (error) {
    if (error instanceof ProcessorError && error.status === 404) return undefined;
    throw error;
  }
}

export const idOf = (named: string | { readonly id: string } | null | undefined): string | null =>
  typeof named === 'string' ? named : (named?.id ?? null);
