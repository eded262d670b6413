const AUTHORITY = /^https?:\/\/[^/?#]*/i;

/** Path and query of a request target, which may be absolute too (RFC 9112, 3.2.2). */
export const pathAndQuery = (target: string): string => target.replace(AUTHORITY, '');

/** False for a target that names no path of an origin (RFC 9112, 3.2): neither `/…` nor `http://host…`, nor * of OPTIONS. */
export const namesPath = (target: string, method: string): boolean =>
  target.startsWith('/') || /^https?:\/\/[^/?#]/i.test(target) || (target === '*' && method === 'OPTIONS');

/** What follows the first question mark; empty when there is none. */
export function queryOf(target: string): string {
  const mark = target.indexOf('?');
  return mark === -1 ? '' : target.slice(mark + 1);
}
