/**
 * The requests that this process works on. While one waits for somebody else, such as the speech provider, it costs
 * nothing here, and does not count as active.
 */
export class WorkInProgress {
  #size = 0;
  #active = 0;
  #lowest = 0;

  /** All of them. */
  get size(): number {
    return this.#size;
  }

  /** Those that wait for nobody but this process and its database. */
  get active(): number {
    return this.#active;
  }

  /** Counts work until it has ended. */
  async run<T>(work: Promise<T>): Promise<T> {
    this.#size += 1;
    this.#active += 1;
    try {
      return await work;
    } finally {
      this.#size -= 1;
      this.#isLess();
    }
  }

  /** Within work that counts: waits for what others do. */
  async waitFor<T>(others: Promise<T>): Promise<T> {
    this.#isLess();
    try {
      return await others;
    } finally {
      this.#active += 1;
    }
  }

  /** The fewest that were active at a time since this was asked last. */
  takeLowest(): number {
    const lowest = this.#lowest;
    this.#lowest = this.#active;
    return lowest;
  }

  #isLess(): void {
    this.#active -= 1;
    if (this.#active < this.#lowest) this.#lowest = this.#active;
  }
}
