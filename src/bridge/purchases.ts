import { OutcomeUnknownError, type Speechgate } from '../client/index.ts';
import type { PendingPurchase } from '../client/pending-purchase.ts';
import type { Speech, SpeechOrder } from '../client/speech.ts';

/** How many are remembered. */
const MAX_UNKNOWN = 1_000;

type Client = Pick<Speechgate, 'speak' | 'resume' | 'conclude'>;

/** Buys speech. A purchase whose end is unknown is gone on with when the same is asked for again, as programs do. */
export class Purchases {
  readonly #client: Client;
  readonly #isDurable: boolean;
  /** By the order. */
  readonly #unknown = new Map<string, PendingPurchase>();
  /** Those whose charge is known by now, and whose audio nobody has asked for. */
  readonly #settled = new WeakSet<PendingPurchase>();

  constructor(client: Client, isDurable: boolean) {
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

  /** Finds out what those have cost whose end is unknown, so that the budget need not hold it back any longer. */
  async conclude(): Promise<void> {
    for (const [key, pending] of this.#unknown) {
      if (this.#settled.has(pending)) continue;
      const conclusion = await this.#client.conclude(pending);
      await conclusion?.speech?.audio.cancel();
      if (conclusion && conclusion.chargedMicroUsd > 0n) this.#settled.add(pending);
      else if (conclusion) this.#unknown.delete(key);
    }
  }
}
