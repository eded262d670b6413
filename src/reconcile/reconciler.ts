import { isConnectionError } from '../db/database-errors.ts';

/** Finishes what dead processes or absent buyers left. Concurrent runs are safe: a write names the state it read. */
export interface Reconciler {
  /** For the log, the metrics and the database: lower case with underscores. */
  readonly name: string;
  readonly everyTurns?: number;
  run(turn: Turn): Promise<void>;
}

export interface Turn {
  /** Aborted when the process stops or has lost the turn: finish what has begun, and begin nothing more. */
  readonly signal: AbortSignal;
  /** How long turns have run without a pause. During one, leases of live owners expire too: these owners act first. */
  readonly steadyMs: number;
  /** Counts finished work, which counts even if the turn fails later. */
  done(count: number): void;
  /** Reports a problem that only a person can solve. The turn continues. */
  report(problem: string): void;
}

export interface TurnResult {
  readonly name: string;
  readonly outcome: 'done' | 'skipped' | 'failed';
  readonly count: number;
  readonly problems?: readonly string[];
  readonly error?: unknown;
}

const MOST_FAILURES = 3;

/** Tolerates a few failed items per turn, so that one does not block the others. Ends without the database. */
export class Failures {
  readonly #errors: unknown[] = [];

  add(error: unknown): void {
    this.note(error);
    if (this.#errors.length === MOST_FAILURES) throw error;
  }

  /** Records a failure that does not end the turn, however many there are. */
  note(error: unknown): void {
    this.#errors.push(error);
    if (isConnectionError(error)) throw error;
  }

  check(): void {
    if (this.#errors.length > 0) throw this.#errors.at(-1);
  }
}

export const reconciler = (
  name: string,
  everyTurns: number,
  work: (turn: Turn, failures: Failures) => Promise<void>,
): Reconciler => ({
  name,
  everyTurns,
  async run(turn) {
    const failures = new Failures();
    await work(turn, failures);
    failures.check();
  },
});

export async function eachClaimed<Item>(
  most: number,
  { signal }: Turn,
  failures: Failures,
  claim: () => Promise<Item | undefined>,
  work: (item: Item) => Promise<void>,
): Promise<number> {
  let claimed = 0;
  for (; claimed < most && !signal.aborted; claimed++) {
    const item = await claim();
    if (item === undefined) break;
    try {
      await work(item);
    } catch (error) {
      failures.add(error);
    }
  }
  return claimed;
}
