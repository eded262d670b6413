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
/** Who has waited for so long is refused, since the database stands. */
const LONGEST_WAIT_MS = 10_000;
/** A request that has begun makes room for others when it has not arrived in so many samples. */
const ARRIVAL_SAMPLES = 3;

export interface ConcurrencyBounds {
  /** Active requests at a time: as many as keep a process busy whose database answers soon. */
  readonly leastAtOnce: number;
  /** Likewise while the process is idle, since all of them wait for the database. */
  readonly mostAtOnce: number;
  /** How long a request may wait to begin: when others have for longer, and not only for a moment, no more may. */
  readonly patienceMs: number;
  /** Likewise while the process is idle. */
  readonly idlePatienceMs: number;
  /** So many may wait in any case, also where a process is slow. */
  readonly leastWaiting: number;
  /** No more wait, even for a moment. */
  readonly mostWaiting: number;
}

/** What becomes of a request: exactly one of these is called. */
export interface Fates {
  begin(): void;
  /** It has waited for too long; nothing was begun. */
  refuse(waitedSeconds: number): void;
  /** Its caller has left while it waited. */
  left(waitedSeconds: number): void;
}

interface Entered {
  readonly request: IncomingMessage;
  readonly fates: Fates;
  /** When it came: monotonic milliseconds. */
  readonly since: number;
  hasBegun: boolean;
  /** Samples in which it had begun, and not arrived. */
  arriving: number;
  /** Until it begins its work, which is counted elsewhere, or has gone. */
  count: 'active' | 'aside' | 'none';
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
 *     has waited for 10 s    -> is refused
 *     begun, does not arrive -> makes room for others: its sender takes his time
 */
export class ConcurrencyLimit {
  readonly #bounds: ConcurrencyBounds;
  readonly #work: WorkInProgress;
  readonly #clock: Clock;
  readonly #time: LoopTime;
  readonly #waiting: Entered[] = [];
  /** Those that have begun and may not have arrived. */
  #arriving: Entered[] = [];
  readonly #entered = new WeakMap<IncomingMessage, Entered>();
  #limit: number;
  #crowdSamples = 0;
  #isBeginning = false;

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
    const { patienceMs, leastWaiting, mostWaiting } = this.#bounds;
    if (this.#waiting.length >= mostWaiting) return true;
    if (this.#waiting.length < leastWaiting || this.#crowdSamples < CROWD_SAMPLES) return false;
    return this.#haveWaited(patienceMs);
  }

  /** Whether half as many wait half as long, so that who does not pay is not to be served beside them. */
  get isHalfFull(): boolean {
    const { patienceMs, leastWaiting } = this.#bounds;
    return this.#waiting.length >= leastWaiting / 2 && this.#haveWaited(patienceMs / 2);
  }

  /** Has a request begin now or in its turn. It counts as work in progress from now on. */
  enter(request: IncomingMessage, response: ServerResponse, fates: Fates): void {
    const since = this.#clock.now();
    const entered: Entered = { request, fates, since, hasBegun: false, arriving: 0, count: 'active' };
    this.#entered.set(request, entered);
    this.#work.came();
    response.once('close', () => this.#leave(entered));
    if (this.#waiting.length === 0 && this.#work.active <= this.#limit) this.#begin(entered);
    else {
      cameAt.set(response, entered.since);
      this.#waiting.push(entered);
    }
  }

  hasEntered(request: IncomingMessage): boolean {
    return this.#entered.has(request);
  }

  /** A request that has entered is counted elsewhere from now on. */
  handOver(request: IncomingMessage): void {
    const entered = this.#entered.get(request);
    if (entered) this.#uncount(entered);
  }

  /** All who wait begin now, and who comes later begins at once. */
  open(): void {
    this.#limit = Number.POSITIVE_INFINITY;
    this.#beginNext();
  }

  /** Looks how busy the process was since this was called last, and whether requests wait for long. */
  sample(): void {
    const { passed, idle } = this.#time.take();
    const isIdle = idle > passed * IDLE_SHARE;
    const { leastAtOnce, mostAtOnce, patienceMs, idlePatienceMs } = this.#bounds;
    this.#crowdSamples = this.#haveWaited(isIdle ? idlePatienceMs : patienceMs)
      ? Math.min(MOST_CROWD_SAMPLES, this.#crowdSamples + 1)
      : Math.max(0, this.#crowdSamples - RELIEF);
    this.#makeRoom();
    if (this.#waiting.length === 0) return;
    this.#limit = isIdle ? Math.min(mostAtOnce, this.#limit * 2) : Math.max(leastAtOnce, this.#limit / 2);
    this.#beginNext();
  }

  /** Takes those out that have waited for too long, and sets those aside that are too slow to arrive. */
  #makeRoom(): void {
    while (this.#haveWaited(LONGEST_WAIT_MS)) {
      const late = this.#waiting.shift() as Entered;
      this.#uncount(late);
      if (isGone(late)) late.fates.left(this.#waitedSeconds(late));
      else late.fates.refuse(this.#waitedSeconds(late));
    }
    const arriving = this.#arriving.filter(({ count, request }) => count === 'active' && !request.complete);
    for (const entered of arriving) entered.arriving += 1;
    this.#arriving = arriving.filter((entered) => entered.arriving < ARRIVAL_SAMPLES);
    for (const entered of arriving) {
      if (entered.arriving < ARRIVAL_SAMPLES) continue;
      entered.count = 'aside';
      this.#work.stepAside();
    }
  }

  /** Whether who has waited longest has for so long. */
  #haveWaited(milliseconds: number): boolean {
    const [first] = this.#waiting;
    return first !== undefined && this.#clock.now() - first.since >= milliseconds;
  }

  #waitedSeconds({ since }: Entered): number {
    return (this.#clock.now() - since) / 1000;
  }

  /** It has been answered before its work began, or its caller has left. */
  #leave(entered: Entered): void {
    const place = entered.hasBegun ? -1 : this.#waiting.indexOf(entered);
    if (place >= 0) {
      this.#waiting.splice(place, 1);
      entered.fates.left(this.#waitedSeconds(entered));
    }
    this.#uncount(entered);
  }

  #uncount(entered: Entered): void {
    if (entered.count === 'none') return;
    if (entered.count === 'aside') this.#work.stepBack();
    entered.count = 'none';
    this.#work.left();
  }

  #beginNext(): void {
    if (this.#isBeginning) return;
    this.#isBeginning = true;
    try {
      while (this.#waiting.length > 0 && this.#work.active - this.#waiting.length < this.#limit) {
        this.#begin(this.#waiting.shift() as Entered);
      }
    } finally {
      this.#isBeginning = false;
    }
  }

  #begin(entered: Entered): void {
    entered.hasBegun = true;
    if (isGone(entered)) {
      this.#uncount(entered);
      entered.fates.left(this.#waitedSeconds(entered));
      return;
    }
    try {
      entered.fates.begin();
    } catch (error) {
      // It is nobody's fault whose work has just ended.
      process.nextTick(() => {
        throw error;
      });
    }
    if (entered.count === 'active') this.#arriving.push(entered);
  }
}

/** Its answer would reach nobody. */
const isGone = ({ request: { socket } }: Entered): boolean => socket.destroyed || socket.writableEnded;
