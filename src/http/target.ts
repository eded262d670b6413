const AUTHORITY = /^https?:\/\/[^/?#]*/i;

/** Path and query of a request target, which may be absolute too (RFC 9112, 3.2.2). */
export const pathAndQuery = (target: string): string => target.replace(AUTHORITY, '');

/** What follows the first question mark; empty when there is none. */
export function queryOf(target: string): string {
  const mark = target.indexOf('?');
  return mark === -1 ? '' : target.slice(mark + 1);
}
