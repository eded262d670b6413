import { setTimeout as sleep } from 'node:timers/promises';

/** Tries that wait for each other at one point, so that something happens to all of them at once. */
export class Gathering {
  readonly #expected: number;
  readonly #happen: () => Promise<unknown>;
  readonly #arrived = new Set<unknown>();
  #begin: () => void = () => {};
  readonly #happened: Promise<unknown>;

  /** @param expected so many are waited for */
  constructor(expected: number, happen: () => Promise<unknown>) {
    this.#expected = expected;
    this.#happen = happen;
    this.#happened = new Promise<void>((resolve) => {
      this.#begin = resolve;
    }).then(() => this.#happen());
    // Who arrives still gets the failure.
    this.#happened.catch(() => {});
  }

  /** Resolves when it has happened. Who arrives twice is counted once. @param patienceMs for those that are missing */
  async arrive(who: unknown, patienceMs = 8_000): Promise<void> {
    if (this.#arrived.size === 0) void sleep(patienceMs).then(this.#begin);
    this.#arrived.add(who);
    if (this.#arrived.size >= this.#expected) this.#begin();
    await this.#happened;
  }
}
