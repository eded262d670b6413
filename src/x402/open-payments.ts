import type { Database } from '../db/database.ts';
import type { Metrics } from '../observability/metrics.ts';
import { Chain, type NodeUrls } from './chain.ts';
import type { Asset } from './network.ts';
import { PaymentOutcomes } from './payment-outcomes.ts';
import { Reservations } from './reservations.ts';
import { Resolver } from './resolver.ts';

/** The parts that know what became of payments: their table, the chain, and who brings the two together. */
export interface OpenPayments {
  readonly reservations: Reservations;
  readonly outcomes: PaymentOutcomes;
  readonly chain: Chain;
  readonly resolver: Resolver;
}

/**
 * Nothing is connected to before the first use; the chain is to be closed.
 * @param metrics where they are served
 */
export function openPayments(db: Database, asset: Asset, rpcUrls: NodeUrls, metrics?: Metrics): OpenPayments {
  const reservations = new Reservations(db, asset);
  const outcomes = new PaymentOutcomes(db, asset);
  const chain = new Chain(rpcUrls, asset);
  return { reservations, outcomes, chain, resolver: new Resolver({ db, outcomes, chain, asset, metrics }) };
}
