import Stripe from 'stripe';

/** The largest page that the processor's lists have. */
export const PAGE_SIZE = 100;

/**
 * The processor refused, could not be reached, or answered something unusable. Nothing of what it said is kept: that
 * may name a session, which shows an account to whoever holds it (R40).
 */
export class ProcessorError extends Error {
  /** @param status of the processor's answer; undefined when there was none, or it was unusable */
  constructor(
    message: string,
    readonly status?: number,
  ) {
    super(message);
    this.name = 'ProcessorError';
  }
}

/** Calls the processor. @throws ProcessorError for whatever it or its SDK refuses */
export async function callProcessor<T>(request: () => Promise<T>): Promise<T> {
  try {
    return await request();
  } catch (error) {
    if (!(error instanceof Stripe.errors.StripeError)) throw error;
    const status = error.statusCode === undefined ? '' : ` with status ${error.statusCode}`;
    throw new ProcessorError(`the call to the card processor failed${status}: ${error.type}`, error.statusCode);
  }
}

/** Calls the processor for one thing; undefined when it knows none of that id. */
export async function findOrUndefined<T>(request: () => Promise<T>): Promise<T | undefined> {
  try {
    return await callProcessor(request);
  } catch (error) {
    if (error instanceof ProcessorError && error.status === 404) return undefined;
    throw error;
  }
}

/** The id of what the processor names, whether it was expanded or not. */
export const idOf = (named: string | { readonly id: string } | null | undefined): string | null =>
  typeof named === 'string' ? named : (named?.id ?? null);
