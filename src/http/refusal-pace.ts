import type { ServerResponse } from 'node:http';
import { type Clock, EVENT_LOOP, LoopTime } from './loop-time.ts';

const SLICE_MS = 10;
/** The share of its time that a process spends on telling who is refused, however much else there is to do. */
const LEAST_SHARE = 0.05;
/** Of the time in which it had nothing to do, the share that it spends on that too, unless others wait. */
const IDLE_SHARE = 0.5;
/** A turn of the event loop may take so long; what is missed beyond that is not made good. */
const LONGEST_TURN_MS = 200;
/** Refusals that wait; for one more the oldest is written at once, since each keeps its request in memory. */
const MOST_WAITING = 8_192;

/**
 * Writes refusals when there is time. To tell somebody no costs about a fifth of what it costs to serve him, so that who
 * refuses four of five requests as they come has hardly time left for the fifth. Who is refused beyond that waits, and
 * asks for nothing else on that connection meanwhile.
 */
export class RefusalPace {
  readonly #write: (response: ServerResponse) => void;
  readonly #hasTime: () => boolean;
  readonly #clock: Clock;
  readonly #time: LoopTime;
  #waiting: ServerResponse[] = [];
  #leftMs = SLICE_MS * LEAST_SHARE;
  #slices: NodeJS.Timeout | undefined;

  /** @param hasTime whether nobody waits who is to be served */
  constructor(write: (response: ServerResponse) => void, hasTime: () => boolean, clock: Clock = EVENT_LOOP) {
    this.#hasTime = hasTime;
    this.#write = write;
    this.#clock = clock;
    this.#time = new LoopTime(clock);
  }

  /** Writes it now or in its turn; not at all to who has left by then. */
  refuse(response: ServerResponse): void {
    this.#slices ??= this.#begin();
    this.#waiting.push(response);
    if (this.#waiting.length === 1) this.#writeInTime();
    else if (this.#waiting.length > MOST_WAITING) this.#write(this.#waiting.shift() as ServerResponse);
  }

  /** Writes all that wait. */
  close(): void {
    clearInterval(this.#slices);
    this.#slices = undefined;
    for (const response of this.#waiting.splice(0)) this.#write(response);
  }

  #begin(): NodeJS.Timeout {
    this.#time.take();
    return setInterval(() => this.#nextSlice(), SLICE_MS);
  }

  #nextSlice(): void {
    const isQuiet = this.#waiting.length === 0 && this.#leftMs >= SLICE_MS * LEAST_SHARE;
    const { passed, idle } = this.#time.take();
    const allowedMs =
      Math.min(LONGEST_TURN_MS, passed) * LEAST_SHARE +
      (this.#hasTime() ? Math.min(LONGEST_TURN_MS, idle) * IDLE_SHARE : 0);
    this.#leftMs = allowedMs + Math.min(0, this.#leftMs);
    if (isQuiet) {
      clearInterval(this.#slices);
      this.#slices = undefined;
    } else this.#writeInTime();
  }

  /** Writes who waits until the time for it is used up. */
  #writeInTime(): void {
    if (this.#leftMs <= 0) return;
    const begunAt = this.#clock.now();
    const until = begunAt + this.#leftMs;
    let [now, written] = [begunAt, 0];
    for (const response of this.#waiting) {
      if (now >= until) break;
      written += 1;
      if (response.destroyed) continue;
      this.#write(response);
      now = this.#clock.now();
    }
    this.#waiting.splice(0, written);
    this.#leftMs = until - now;
  }
}
