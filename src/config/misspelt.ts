/** Shorter names resemble too many unrelated variables, such as HOME. */
const MIN_LENGTH = 8;
const MAX_EDITS = 2;

export interface Misspelling {
  readonly name: string;
  readonly meant: string;
}

export function findMisspelt(names: readonly string[], settings: ReadonlySet<string>): Misspelling[] {
  return names
    .filter((name) => !settings.has(name))
    .flatMap((name) => {
      const meant = [...settings].find((setting) => setting.length >= MIN_LENGTH && edits(name, setting) <= MAX_EDITS);
      return meant === undefined ? [] : [{ name, meant }];
    });
}

/** Levenshtein distance; infinite if the lengths alone differ by more than MAX_EDITS. */
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
