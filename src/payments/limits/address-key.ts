import { isIPv4, isIPv6 } from 'node:net';

/** Texts that are no address share one bucket, so that nonsense opens no new ones. */
const NO_ADDRESS = 'unknown';

/** What a limit counts by: an IPv4 address, or the /64 network of an IPv6 address, which is one subscriber (R13). */
export function addressKey(address: string): string {
  if (isIPv4(address)) return address;
  if (!isIPv6(address)) return NO_ADDRESS;
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
