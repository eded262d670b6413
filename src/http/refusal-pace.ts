import type { ServerResponse } from 'node:http';

/** So many refusals are written in a slice of time, 2,000 a second: together they cost about a fifth of a core. */
const SLICE_MS = 10;
const MOST_A_SLICE = 20;
/** A turn of the event loop may take so many slices; what is missed beyond that is not made good. */
const MOST_SLICES = 20;
/** Refusals that wait; one more is written at once, since each keeps its request in memory. */
const MOST_WAITING = 8_192;

/**
 * Writes refusals at a pace. To tell somebody no costs about a fifth of what it costs to serve him, so that who refuses
 * four of five requests as they come has hardly time left for the fifth. Who is refused beyond the pace waits for it, and
 * asks for nothing else on that connection meanwhile.
 */
export class RefusalPace {
  readonly #write: (response: ServerResponse) => void;
  #waiting: ServerResponse[] = [];
  #left = MOST_A_SLICE;
  #slices: NodeJS.Timeout | undefined;
  #slicedAt = 0;

  constructor(write: (response: ServerResponse) => void) {
    this.#write = write;
  }

  /** Writes it now or in its turn; not at all to who has left by then. */
  refuse(response: ServerResponse): void {
    this.#slices ??= this.#begin();
    if (this.#waiting.length === 0 && this.#left > 0) {
      this.#left -= 1;
      this.#write(response);
    } else if (this.#waiting.length >= MOST_WAITING) this.#write(response);
    else this.#waiting.push(response);
  }

  /** Writes all that wait. */
  close(): void {
    clearInterval(this.#slices);
    this.#slices = undefined;
    for (const response of this.#waiting.splice(0)) this.#write(response);
  }

  #begin(): NodeJS.Timeout {
    this.#slicedAt = performance.now();
    return setInterval(() => this.#nextSlice(), SLICE_MS);
  }

  #nextSlice(): void {
    const isQuiet = this.#left >= MOST_A_SLICE;
    const now = performance.now();
    this.#left = Math.floor(MOST_A_SLICE * Math.min(MOST_SLICES, Math.max(1, (now - this.#slicedAt) / SLICE_MS)));
    this.#slicedAt = now;
    if (this.#waiting.length === 0) {
      if (isQuiet) {
        clearInterval(this.#slices);
        this.#slices = undefined;
      }
      return;
    }
    while (this.#left > 0) {
      const response = this.#waiting.shift();
      if (!response) return;
      if (response.destroyed) continue;
      this.#left -= 1;
      this.#write(response);
    }
  }
}
