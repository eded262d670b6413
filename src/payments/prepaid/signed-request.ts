/** The EIP-712 type of a prepaid request (specification, "Authentication" 4; R30), in the form that libraries take. */
export const PREPAID_TYPES = {
  PrepaidRequest: [
    { name: 'account', type: 'address' },
    { name: 'method', type: 'string' },
    { name: 'path', type: 'string' },
    { name: 'bodyHash', type: 'bytes32' },
    { name: 'maxAmountMicroUsd', type: 'uint256' },
    { name: 'nonce', type: 'string' },
    /** Unix seconds. */
    { name: 'expiry', type: 'uint256' },
  ],
} as const;

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
