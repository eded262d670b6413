import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import type { Outcome } from './run.ts';

/** What outcomes can be put together in one table: those of the same code, with as many tries. */
export interface Terms {
  readonly commit: string;
  readonly tries: number;
}

/** Outcomes in a file, a line each, so that a run which was cut off goes on where it was, and can be made in parts. */
export class Kept {
  readonly #file: string;
  readonly #terms: Terms;

  constructor(file: string, terms: Terms) {
    this.#file = file;
    this.#terms = terms;
  }

  /** Those of the same terms, of this run or earlier ones. */
  outcomes(): Outcome[] {
    if (!existsSync(this.#file)) return [];
    const lines = readFileSync(this.#file, 'utf8').split('\n').filter(Boolean);
    return lines
      .map((line) => JSON.parse(line) as Outcome & Terms)
      .filter(({ commit, tries }) => commit === this.#terms.commit && tries === this.#terms.tries);
  }

  add(outcome: Outcome): void {
    appendFileSync(this.#file, `${JSON.stringify({ ...outcome, commit: this.#terms.commit })}\n`);
  }
}
