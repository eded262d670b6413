import { isDeepStrictEqual } from 'node:util';
import type { Asset } from './network.ts';
import type { Address } from './payees.ts';

/** How long a challenge asks an authorization to be valid (R27). */
export const MAX_TIMEOUT_SECONDS = 120;

/** One entry of a challenge's `accepts`: what to sign (x402 version 2, scheme exact). */
export interface Offer {
  readonly scheme: 'exact';
  readonly network: Asset['network'];
  /** Atomic units of the asset. */
  readonly amount: string;
  readonly asset: Address;
  readonly payTo: Address;
  readonly maxTimeoutSeconds: number;
  readonly extra: { readonly name: string; readonly version: string };
}

export const makeOffer = (asset: Asset, amount: bigint, payTo: Address): Offer => ({
  scheme: 'exact',
  network: asset.network,
  amount: String(amount),
  asset: asset.address,
  payTo,
  maxTimeoutSeconds: MAX_TIMEOUT_SECONDS,
  extra: { name: asset.name, version: asset.version },
});

/** The offer that a payment accepted, unmodified; undefined when it is none of them (R23). */
export const findOffer = (offers: readonly Offer[], accepted: unknown): Offer | undefined =>
  offers.find((offer) => isDeepStrictEqual(offer, accepted));
