import { performance } from 'node:perf_hooks';

/** Where the time of a process goes: milliseconds since some moment, and how many of them its event loop was idle. */
export interface Clock {
  now(): number;
  idle(): number;
}

export const EVENT_LOOP: Clock = {
  now: () => performance.now(),
  idle: () => performance.eventLoopUtilization().idle,
};

/** Measures from one look to the next how long it was, and how long the event loop had nothing to do meanwhile. */
export class LoopTime {
  readonly #clock: Clock;
  #now: number;
  #idle: number;

  constructor(clock: Clock = EVENT_LOOP) {
    this.#clock = clock;
    this.#now = clock.now();
    this.#idle = clock.idle();
  }

  /** Milliseconds since the last look. */
  take(): { readonly passed: number; readonly idle: number } {
    const [now, idle] = [this.#clock.now(), this.#clock.idle()];
    const taken = { passed: now - this.#now, idle: idle - this.#idle };
    this.#now = now;
    this.#idle = idle;
    return taken;
  }
}
