import { isAway } from '../db/database-errors.ts';

const MOST = 3;

/**
 * The failures of single pieces of work within a turn. A few are put up with, so that one bad piece never keeps the
 * others waiting; more, or a database that is away, end the turn.
 */
export class Failures {
  readonly #errors: unknown[] = [];

  /** Notes a failure, or throws it when the turn has to end. */
  add(error: unknown): void {
    this.note(error);
    if (this.#errors.length === MOST) throw error;
  }

  /** Notes a failure that, however many there are, does not keep the others waiting; throws it when the database is away. */
  note(error: unknown): void {
    this.#errors.push(error);
    if (isAway(error)) throw error;
  }

  /** At a turn's end: throws the last failure, if there was one. */
  check(): void {
    if (this.#errors.length > 0) throw this.#errors.at(-1);
  }
}
