import { isIP } from 'node:net';

/** Against DNS rebinding: a foreign page sends its own name. Only HTTP/1.0, which no browser speaks, may send none. */
export function isOwnHost(header: string | undefined, names: readonly string[] = []): boolean {
  if (header === undefined) return true;
  const host = header.toLowerCase().replace(/:\d*$/, '');
  const address = /^\[(.*)\]$/.exec(host)?.[1];
  if (address !== undefined) return isIP(address) === 6;
  return isIP(host) === 4 || host === 'localhost' || names.includes(host);
}
