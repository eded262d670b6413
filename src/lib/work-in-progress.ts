/**
 * The requests that this process works on. While one waits for somebody else, such as the speech provider, it costs
 * nothing here, and does not count as active.
 */
export class WorkInProgress {
  /** Called when fewer are active. */
  onLess: () => void = () => {};
  #size = 0;
  #active = 0;

  /** All of them. */
  get size(): number {
    return this.#size;
  }

  /** Those that wait for nobody but this process and its database, also those that wait for their turn in it. */
  get active(): number {
    return this.#active;
  }

  /** Counts work that has come, until it `left`. */
  came(): void {
    this.#size += 1;
    this.#active += 1;
  }

  left(): void {
    this.#size -= 1;
    this.stepAside();
  }

  /** Counts work until it has ended. */
  async run<T>(work: Promise<T>): Promise<T> {
    this.came();
    try {
      return await work;
    } finally {
      this.left();
    }
  }

  /** Counts work until it has ended, but never as active. */
  async runAside<T>(work: Promise<T>): Promise<T> {
    this.#size += 1;
    try {
      return await work;
    } finally {
      this.#size -= 1;
    }
  }

  /** Within work that counts: waits for what others do. */
  async waitFor<T>(others: Promise<T>): Promise<T> {
    this.stepAside();
    try {
      return await others;
    } finally {
      this.stepBack();
    }
  }

  /** Work that counts is not active from now on, until it steps back. */
  stepAside(): void {
    this.#active -= 1;
    this.onLess();
  }

  stepBack(): void {
    this.#active += 1;
  }
}
