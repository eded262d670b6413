/**
 * The query as a prepaid GET signs it (R49): decoded names and values through `encodeURIComponent`, joined by `=` and
 * `&`. They are sorted by decoded name, then by decoded value, in UTF-16 code units.
 */
export function canonicalQuery(url: string): string {
  const start = url.indexOf('?');
  if (start === -1) return '';
  // One leading question mark is dropped; any other belongs to the first name.
  return [...new URLSearchParams(url.slice(start))]
    .sort(([nameA, valueA], [nameB, valueB]) => compare(nameA, nameB) || compare(valueA, valueB))
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`)
    .join('&');
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
