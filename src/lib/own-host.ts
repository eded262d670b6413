import { isIP } from 'node:net';

/**
 * A page of another origin whose name an attacker has pointed here (DNS rebinding) reads as same-origin, but sends that
 * name. Nobody can point an address elsewhere; a client of HTTP/1.0, which no browser is, may send no name.
 * @param names that the listener answers to, in lower case, besides addresses and localhost
 */
export function isOwnHost(header: string | undefined, names: readonly string[] = []): boolean {
  if (header === undefined) return true;
  const host = header.toLowerCase().replace(/:\d*$/, '');
  const address = /^\[(.*)\]$/.exec(host)?.[1];
  if (address !== undefined) return isIP(address) === 6;
  return isIP(host) === 4 || host === 'localhost' || names.includes(host);
}
