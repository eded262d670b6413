import type { PendingPurchase } from '../client/pending-purchase.ts';
import type { Speech } from '../client/speech.ts';

/** The whole audio of a purchase, as the service sent it. */
export interface WholeAudio {
  readonly contentType: Speech['contentType'];
  readonly bytes: Uint8Array;
}

/** Purchases whose audio nobody has got yet: they are kept until it is where it was to go, also after they are settled. */
export interface KeptSpeech {
  /** What is kept already stays as it is. */
  keep(pending: PendingPurchase): Promise<void>;
  find(identifier: string): Promise<PendingPurchase | undefined>;
  list(): Promise<readonly PendingPurchase[]>;
  drop(identifier: string): Promise<void>;
  /** Keeps audio that its program could not be given; whoever resumes the purchase gets it. */
  keepAudio(identifier: string, audio: WholeAudio): Promise<void>;
}
