/**
 * The query as a prepaid GET signs it (R49): each decoded name and value through `encodeURIComponent`, joined by `=`
 * and `&`, sorted by decoded name and then by decoded value, in UTF-16 code units. `+` is a space, a name without `=`
 * has an empty value.
 * @param url path and query as they were sent
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
