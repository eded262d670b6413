/**
 * Finishes what a process that died, or a buyer who never came back, has left unfinished. Running it twice at once is
 * harmless, also when one of the two was frozen in the middle for hours: what it writes then names the state that it
 * has seen.
 */
export interface Reconciler {
  /** For the log, the metrics and the database: lower case with underscores. */
  readonly name: string;
  /** Acts in each nth turn only; in each one by default. */
  readonly everyTurns?: number;
  run(turn: Turn): Promise<void>;
}

export interface Turn {
  /** Aborted when the process stops, or has lost the turn: what has been begun is finished, and nothing more is begun. */
  readonly signal: AbortSignal;
  /** Counts pieces of work that are done. They count also when the turn fails later. */
  done(count: number): void;
  /** Tells an operator of something that only a person can settle. The turn goes on. */
  report(problem: string): void;
}

export interface TurnResult {
  readonly name: string;
  /** Skipped: another process is at it, or was a moment ago. */
  readonly outcome: 'done' | 'skipped' | 'failed';
  readonly count: number;
  /** What the turn has reported. */
  readonly problems?: readonly string[];
  readonly error?: unknown;
}
