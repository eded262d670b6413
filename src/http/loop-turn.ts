/** How long a turn of the event loop may take work on that nobody has paid for; less while turns have kept taking longer. */
const MOST_MS = 25;
const LEAST_MS = 3;
/** Turns in a row that have to be too long: one alone may be a collection of garbage, or a process that was stopped. */
const LONG_TURNS = 2;

/** How long the event loop is at what has arrived together, which is what everybody waits for who has come meanwhile. */
export class LoopTurn {
  /** Monotonic milliseconds; 0 between turns. */
  #begunAt = 0;
  #patienceMs = MOST_MS;
  #longTurns = 0;
  readonly #now: () => number;
  readonly #atEnd: (end: () => void) => void;

  /** @param atEnd calls back once all has been begun that has arrived by now */
  constructor(now = () => performance.now(), atEnd: (end: () => void) => void = setImmediate) {
    this.#now = now;
    this.#atEnd = atEnd;
  }

  /** Whether this turn is too long already, as those before it were. Counts from the first call in a turn on. */
  isLong(): boolean {
    const now = this.#now();
    if (this.#begunAt === 0) {
      this.#begunAt = now;
      this.#atEnd(this.#end);
      return false;
    }
    return this.#longTurns >= LONG_TURNS && now - this.#begunAt >= this.#patienceMs;
  }

  readonly #end = (): void => {
    const isLong = this.#now() - this.#begunAt >= this.#patienceMs;
    this.#begunAt = 0;
    this.#longTurns = isLong ? this.#longTurns + 1 : 0;
    if (isLong && this.#longTurns >= LONG_TURNS) this.#patienceMs = Math.max(LEAST_MS, this.#patienceMs / 2);
    else if (!isLong) this.#patienceMs = Math.min(MOST_MS, this.#patienceMs * 2);
  };
}
