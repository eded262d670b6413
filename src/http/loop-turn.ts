/** How long a turn of the event loop may take work on that nobody has paid for; less while turns have kept taking longer. */
const MOST_MS = 25;
const LEAST_MS = 3;
/**
 * Requests in a turn that do not make it long, however long it takes: the process may have to share its core, and there
 * is no queue where each of so many callers has one request at a time.
 */
const FEW = 64;
/** Turns in a row that have to be too long: one alone may be a collection of garbage, or a process that was stopped. */
const LONG_TURNS = 2;

/** How long the event loop is at what has arrived together, which is what everybody waits for who has come meanwhile. */
export class LoopTurn {
  #begun = 0;
  /** Monotonic milliseconds. */
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

  /** Counts a request. Tells whether its turn is too long already, as those before it were. */
  isLong(): boolean {
    this.#begun += 1;
    if (this.#begun === 1) {
      this.#begunAt = this.#now();
      this.#atEnd(this.#end);
    }
    return this.#longTurns >= LONG_TURNS && this.#isBeyond();
  }

  #isBeyond(): boolean {
    return this.#begun > FEW && this.#now() - this.#begunAt >= this.#patienceMs;
  }

  readonly #end = (): void => {
    const isLong = this.#isBeyond();
    this.#begun = 0;
    this.#longTurns = isLong ? this.#longTurns + 1 : 0;
    if (!isLong) this.#patienceMs = Math.min(MOST_MS, this.#patienceMs * 2);
    else if (this.#longTurns >= LONG_TURNS) this.#patienceMs = Math.max(LEAST_MS, this.#patienceMs / 2);
  };
}
