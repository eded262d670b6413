import { UntrustedError } from './errors.ts';
import type { Terms } from './payment-way.ts';
import { picoUsd } from './price.ts';
import type { Metadata } from './verify-metadata.ts';

/** A model's rate by the signed metadata, in 10^-12 USD per character. @throws UntrustedError when it has no such model */
export function signedRate({ pricing }: Metadata, model: string): bigint {
  const found = pricing.models.find(({ id }) => id === model);
  if (!found) throw new UntrustedError('unknown_model', `The signed metadata has no price of ${model}.`);
  return picoUsd(found.ratePerCharacterUsd);
}

/**
 * A model's rate: by the signed metadata where keys are pinned, else by the catalog.
 * @throws InvalidRequestError when the service has no such model
 * @throws UntrustedError when the service lists the model, and its signed metadata does not
 */
export async function rateOf(model: string, { catalog, metadata, signal }: Terms): Promise<bigint> {
  if (!metadata) return catalog.rateOf(model, signal);
  try {
    return await metadata.holds((payload) => signedRate(payload, model), signal);
  } catch (error) {
    await catalog.rateOf(model, signal);
    throw error;
  }
}
