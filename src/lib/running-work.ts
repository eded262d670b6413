import { Roster } from './roster.ts';

/** Work that outlives the request that began it. Stopping waits for it, since it may hold money (R55). */
export class RunningWork {
  readonly #running = new Roster<Promise<unknown>>();

  /** Works that run now. */
  get size(): number {
    return this.#running.size;
  }

  add<T>(work: Promise<T>): Promise<T> {
    const forget = this.#running.add(work);
    work.then(forget, forget);
    return work;
  }

  /** Resolves when nothing runs any more. */
  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.allSettled(this.#running);
  }
}
