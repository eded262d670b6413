import type { PendingPurchase } from '../client/pending-purchase.ts';

/** Purchases whose audio nobody has got yet: they are kept until it is where it was to go, also after they are settled. */
export interface KeptSpeech {
  /** What is kept already stays as it is. */
  keep(pending: PendingPurchase): Promise<void>;
  find(identifier: string): Promise<PendingPurchase | undefined>;
  list(): Promise<readonly PendingPurchase[]>;
  drop(identifier: string): Promise<void>;
}
