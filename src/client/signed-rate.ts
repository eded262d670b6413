import { UntrustedError } from './errors.ts';
import { picoUsd } from './price.ts';
import type { Metadata } from './verify-metadata.ts';

/** A model's rate by the signed metadata, in 10^-12 USD per character. @throws UntrustedError when it has no such model */
export function signedRate({ pricing }: Metadata, model: string): bigint {
  const found = pricing.models.find(({ id }) => id === model);
  if (!found) throw new UntrustedError('unknown_model', `The signed metadata has no price of ${model}.`);
  return picoUsd(found.ratePerCharacterUsd);
}
