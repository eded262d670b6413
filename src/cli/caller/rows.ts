import { serviceWords } from '../../lib/service-words.ts';
import { tableLine } from '../table-line.ts';

const MAX_ROWS = 100;

export const ALL_OPTION = { all: { type: 'boolean', default: false } } as const;
export const ALL_USAGE = `
  --all            lists all of them; otherwise the first ${MAX_ROWS} (--json has all)`;

/** A list for people: its first rows, and how many more there are. What a service says in them is shortened. */
export function rowsOf<Item>(
  items: readonly Item[],
  { all }: { readonly all: boolean },
  cellsOf: (item: Item) => readonly string[],
  head: readonly string[] = [],
): readonly string[] {
  const shown = all ? items : items.slice(0, MAX_ROWS);
  const rows = shown.map((item) => cellsOf(item).map(serviceWords));
  const table = head.length > 0 ? [head, ...rows] : rows;
  const columns = Math.max(0, ...table.slice(0, 1).map(({ length }) => length));
  const widths = Array.from({ length: Math.max(0, columns - 1) }, (_, column) =>
    table.reduce((widest, row) => Math.max(widest, row[column]?.length ?? 0), 0),
  );
  const more = items.length - shown.length;
  return [...table.map((row) => tableLine(widths, row)), ...(more > 0 ? [`${more} more; --all lists them.`] : [])];
}
