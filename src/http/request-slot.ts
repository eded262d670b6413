import type { PendingSlot, Slot } from '../limits/slot.ts';
import type { RateLimited } from './rate-limit-answer.ts';

/** The slot of a request's window, which is taken once: with the hold that pays for the request, or by itself. */
export class RequestSlot implements PendingSlot {
  readonly #takeAlone: () => Promise<Slot>;
  readonly #show: (slot: Slot) => RateLimited | undefined;
  #isTaken = false;
  #refusal: RateLimited | undefined;

  /** @param show shows the slot in the answer's headers; tells the refusal if it is one */
  constructor(takeAlone: () => Promise<Slot>, show: (slot: Slot) => RateLimited | undefined) {
    this.#takeAlone = takeAlone;
    this.#show = show;
  }

  async take(): Promise<boolean> {
    return (await this.refusal()) === undefined;
  }

  taken(slot: Slot): boolean {
    this.#isTaken = true;
    this.#refusal = this.#show(slot);
    return slot.allowed;
  }

  /** The answer when the slot is refused. It is taken by itself if nothing has taken it. */
  async refusal(): Promise<RateLimited | undefined> {
    if (!this.#isTaken) this.taken(await this.#takeAlone());
    return this.#refusal;
  }
}
