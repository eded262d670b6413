import { OutcomeUnknownError, type Speechgate } from '../client/index.ts';
import type { PendingPurchase } from '../client/pending-purchase.ts';
import type { Speech, SpeechOrder } from '../client/speech.ts';

/** How many are remembered. */
const MAX_UNKNOWN = 1_000;

/** Buys speech. A purchase whose end is unknown is gone on with when the same is asked for again, as programs do. */
export class Purchases {
  readonly #client: Pick<Speechgate, 'speak' | 'resume'>;
  readonly #isDurable: boolean;
  /** By the order. */
  readonly #unknown = new Map<string, PendingPurchase>();

  constructor(client: Pick<Speechgate, 'speak' | 'resume'>, isDurable: boolean) {
    this.#client = client;
    this.#isDurable = isDurable;
  }

  /** @throws SpeechgateError */
  async buy(order: SpeechOrder): Promise<Speech> {
    const key = JSON.stringify(order);
    const pending = this.#unknown.get(key);
    this.#unknown.delete(key);
    try {
      return await (pending ? this.#client.resume(pending) : this.#client.speak(order, { durable: this.#isDurable }));
    } catch (error) {
      if (error instanceof OutcomeUnknownError && this.#unknown.size < MAX_UNKNOWN) {
        this.#unknown.set(key, error.pending);
      }
      throw error;
    }
  }
}
