/** Shorter names resemble too much that is not meant for the service, such as HOME. */
const MIN_LENGTH = 8;
const MAX_EDITS = 2;

/** A variable that is no setting, and the setting that was probably meant. */
export interface Misspelling {
  readonly name: string;
  readonly meant: string;
}

/** Finds among the names of variables those that look like settings and are none. */
export function findMisspelt(names: readonly string[], settings: ReadonlySet<string>): Misspelling[] {
  return names
    .filter((name) => !settings.has(name))
    .flatMap((name) => {
      const meant = [...settings].find((setting) => setting.length >= MIN_LENGTH && edits(name, setting) <= MAX_EDITS);
      return meant === undefined ? [] : [{ name, meant }];
    });
}

/** Letters to insert, delete or replace on the way from one word to the other (Levenshtein). */
function edits(from: string, to: string): number {
  if (Math.abs(from.length - to.length) > MAX_EDITS) return Number.POSITIVE_INFINITY;
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [line, letter] of [...from].entries()) {
    const next = [line + 1];
    for (let column = 1; column <= to.length; column++) {
      const replaced = (row[column - 1] as number) + (letter === to[column - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[column] as number) + 1, (next[column - 1] as number) + 1));
    }
    row = next;
  }
  return row[to.length] as number;
}
