import { isIP, isIPv4 } from 'node:net';

const UNKNOWN = 'unknown';
/** Bounds what a proxy's name for a client takes in memory and in the database. */
const MAX_NAME_LENGTH = 64;

/**
 * The address in what a proxy writes of a client, which may have a port, brackets or quotes: `203.0.113.7:50000`,
 * `[2001:db8::1]:443`. Other text is a name (RFC 7239 allows `_hidden` and `unknown`), and loses only its port.
 */
export function withoutPort(text: string): string {
  if (isIP(text) !== 0) return text;
  const [, bracketed, plain = ''] = /^"?(?:\[([^\]]*)\]|([^"]*?))(?::[^:\]]*)?"?$/.exec(text) ?? [];
  return bracketed ?? plain;
}

/**
 * What a limit counts by: an IPv4 address, the /64 network of an IPv6 address, which is one subscriber (R13), or the
 * name that a trusted proxy has for a client. Clients choose none of them.
 */
export function addressKey(written: string): string {
  const address = withoutPort(written);
  if (isIPv4(address)) return address;
  if (isIP(address) === 0) return address.slice(0, MAX_NAME_LENGTH) || UNKNOWN;
  const groups = groupsOf(address);
  if (groups.slice(0, 6).join(':') === '0:0:0:0:0:ffff') {
    return groups
      .slice(6)
      .flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16) & 0xff])
      .join('.');
  }
  return `${groups.slice(0, 4).join(':')}::/64`;
}

function groupsOf(address: string): string[] {
  const [withoutZone] = address.split('%', 1);
  const canonical = new URL(`http://[${withoutZone}]`).hostname.slice(1, -1);
  const [head = '', tail] = canonical.split('::');
  const before = head === '' ? [] : head.split(':');
  if (tail === undefined) return before;
  const after = tail === '' ? [] : tail.split(':');
  return [...before, ...Array(8 - before.length - after.length).fill('0'), ...after];
}
