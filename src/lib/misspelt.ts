/** Shorter names resemble too many unrelated variables, such as HOME. */
const MIN_LENGTH = 8;
const MAX_EDITS = 2;
const MIN_LONG_NAME = 5;

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

/** The known name that was probably meant; a short one must be closer than a long one. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const maxEdits = name.length < MIN_LONG_NAME ? 1 : MAX_EDITS;
  const byEdits = known
    .map((each) => ({ each, count: edits(name.toLowerCase(), each.toLowerCase()) }))
    .filter(({ count }) => count <= maxEdits);
  return byEdits.toSorted((one, other) => one.count - other.count)[0]?.each;
}

/** Levenshtein distance where two swapped letters are one edit; infinite if the lengths differ by more than MAX_EDITS. */
function edits(from: string, to: string): number {
  if (Math.abs(from.length - to.length) > MAX_EDITS) return Number.POSITIVE_INFINITY;
  let before: number[] = [];
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [line, letter] of [...from].entries()) {
    const next = [line + 1];
    for (let column = 1; column <= to.length; column++) {
      const replaced = (row[column - 1] as number) + (letter === to[column - 1] ? 0 : 1);
      const isSwapped = letter === to[column - 2] && from[line - 1] === to[column - 1];
      const swapped = isSwapped ? (before[column - 2] as number) + 1 : replaced;
      next.push(Math.min(replaced, swapped, (row[column] as number) + 1, (next[column - 1] as number) + 1));
    }
    before = row;
    row = next;
  }
  return row[to.length] as number;
}
