import type { IncomingMessage, ServerResponse } from 'node:http';
import type { WorkInProgress } from '../lib/work-in-progress.ts';
import { type Clock, EVENT_LOOP, LoopTime } from './loop-time.ts';

/** A process that has nothing to do for this share of its time, while requests wait, could work on more. */
const IDLE_SHARE = 0.5;
/** In so many samples requests have to wait for too long before others are refused for it: a moment does no harm. */
const CROWD_SAMPLES = 10;
const MOST_CROWD_SAMPLES = 20;
/** What a sample takes back of that in which they don't: who is refused makes room, and load that lasts would be let in again. */
const RELIEF = 0.25;

export interface ConcurrencyBounds {
  /** Active requests at a time: as many as keep a process busy whose database answers soon. */
  readonly leastAtOnce: number;
  /** Likewise while the process is idle, since all of them wait for the database. */
  readonly mostAtOnce: number;
  /** How long a request may wait to begin: when others have for longer, and not only for a moment, no more may. */
  readonly patienceMs: number;
  /** Likewise while the process is idle. */
  readonly idlePatienceMs: number;
  /** Requests that wait, even for a moment. */
  readonly mostWaiting: number;
}

interface Waiting {
  readonly request: IncomingMessage;
  readonly begin: () => void;
  /** Monotonic milliseconds. */
  readonly since: number;
}

const cameAt = new WeakMap<ServerResponse, number>();

/** When the request of this answer came, if it had to wait: monotonic milliseconds. */
export const arrivalOf = (response: ServerResponse): number | undefined => cameAt.get(response);

/**
 * Has requests begin one after the other when as many are active as keep the process busy. With more of them, all go
 * from stage to stage as one crowd, and each waits at each stage for the last one.
 *
 *     comes                  -> begins, or waits while the limit is reached
 *     one less is active     -> who has waited longest begins
 *     idle, and some wait    -> the limit doubles: what is at work waits for the database
 *     busy, and some wait    -> the limit falls to half
 */
export class ConcurrencyLimit {
  readonly #bounds: ConcurrencyBounds;
  readonly #work: WorkInProgress;
  readonly #clock: Clock;
  readonly #time: LoopTime;
  readonly #waiting: Waiting[] = [];
  /** Those that have come, and that nobody has counted as work yet. */
  readonly #arrived = new Set<IncomingMessage>();
  #limit: number;
  #crowdSamples = 0;

  constructor(bounds: ConcurrencyBounds, work: WorkInProgress, clock: Clock = EVENT_LOOP) {
    this.#bounds = bounds;
    this.#work = work;
    this.#clock = clock;
    this.#time = new LoopTime(clock);
    this.#limit = bounds.leastAtOnce;
    work.onLess = () => this.#beginNext();
  }

  /** Those that have not begun. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Whether one more would wait for too long, or too many do. */
  get isFull(): boolean {
    const { patienceMs, mostWaiting } = this.#bounds;
    if (this.#waiting.length >= mostWaiting) return true;
    return this.#crowdSamples >= CROWD_SAMPLES && this.#haveWaited(patienceMs);
  }

  /** Whether others wait so long already that who does not pay is not to be served before them. */
  get isHalfFull(): boolean {
    return this.#waiting.length >= this.#limit / 2 && this.#haveWaited(this.#bounds.patienceMs / 2);
  }

  /** Has a request begin now or in its turn; never once its caller has left. It counts as work in progress from now on. */
  enter(request: IncomingMessage, response: ServerResponse, begin: () => void): void {
    this.#arrived.add(request);
    this.#work.came();
    response.once('close', () => this.#leave(request));
    if (this.#waiting.length === 0 && this.#work.active <= this.#limit) begin();
    else {
      const since = this.#clock.now();
      cameAt.set(response, since);
      this.#waiting.push({ request, begin, since });
    }
  }

  /** A request that has begun is counted elsewhere from now on. */
  handOver(request: IncomingMessage): void {
    if (this.#arrived.delete(request)) this.#work.left();
  }

  /** Looks how busy the process was since this was called last, and whether requests wait for long. */
  sample(): void {
    const { passed, idle } = this.#time.take();
    const isIdle = idle > passed * IDLE_SHARE;
    const { leastAtOnce, mostAtOnce, patienceMs, idlePatienceMs } = this.#bounds;
    if (!this.#haveWaited(patienceMs)) this.#crowdSamples = Math.max(0, this.#crowdSamples - RELIEF);
    else if (!isIdle || this.#haveWaited(idlePatienceMs)) {
      this.#crowdSamples = Math.min(MOST_CROWD_SAMPLES, this.#crowdSamples + 1);
    }
    if (this.#waiting.length === 0) return;
    this.#limit = isIdle ? Math.min(mostAtOnce, this.#limit * 2) : Math.max(leastAtOnce, this.#limit / 2);
    this.#beginNext();
  }

  /** Whether who has waited longest has for so long. */
  #haveWaited(milliseconds: number): boolean {
    const [first] = this.#waiting;
    return first !== undefined && this.#clock.now() - first.since >= milliseconds;
  }

  /** It has been answered without having been handed over, or its caller has left. */
  #leave(request: IncomingMessage): void {
    if (!this.#arrived.has(request)) return;
    const place = this.#waiting.findIndex((each) => each.request === request);
    if (place >= 0) this.#waiting.splice(place, 1);
    this.handOver(request);
  }

  #beginNext(): void {
    while (this.#waiting.length > 0 && this.#work.active - this.#waiting.length < this.#limit) {
      this.#waiting.shift()?.begin();
    }
  }
}
