import { setTimeout as sleep } from 'node:timers/promises';

/** A barrier: tries wait at one point until `happen` has acted on all of them at once. */
export class Gathering {
  readonly #expected: number;
  readonly #happen: () => Promise<unknown>;
  readonly #arrived = new Set<unknown>();
  #begin: () => void = () => {};
  readonly #happened: Promise<unknown>;

  /** @param expected number of tries that have to arrive */
  constructor(expected: number, happen: () => Promise<unknown>) {
    this.#expected = expected;
    this.#happen = happen;
    this.#happened = new Promise<void>((resolve) => {
      this.#begin = resolve;
    }).then(() => this.#happen());
    // `arrive` still rejects.
    this.#happened.catch(() => {});
  }

  /** Resolves after `happen`. A repeated arrival counts once. @param timeoutMs how long to wait for missing tries */
  async arrive(who: unknown, timeoutMs = 8_000): Promise<void> {
    if (this.#arrived.size === 0) void sleep(timeoutMs).then(this.#begin);
    this.#arrived.add(who);
    if (this.#arrived.size >= this.#expected) this.#begin();
    await this.#happened;
  }
}
