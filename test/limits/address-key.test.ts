import assert from 'node:assert/strict';
import { test } from 'tap';
import { addressKey } from '../../src/limits/address-key.ts';

const CASES: [address: string, key: string][] = [
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['::FFFF:c000:207', '192.0.2.7'],
  ['0:0:0:0:0:ffff:192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:DB8:0001:0002::', '2001:db8:1:2::/64'],
  ['2001:db8:1:2:ffff:ffff:ffff:ffff', '2001:db8:1:2::/64'],
  ['2001:db8:1:3::1', '2001:db8:1:3::/64'],
  ['2001:db8::1', '2001:db8:0:0::/64'],
  ['2001:db8::7:1:2:3:4', '2001:db8:0:7::/64'],
  ['::1', '0:0:0:0::/64'],
  ['::', '0:0:0:0::/64'],
  ['1::', '1:0:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['::fffe:192.0.2.7', '0:0:0:0::/64'],
  ['', 'unknown'],
  ['unknown', 'unknown'],
  ['192.0.2.7:4711', 'unknown'],
  ['1.2.3', 'unknown'],
  ['2001:db8::1::2', 'unknown'],
];

for (const [address, key] of CASES) {
  test(`R13: ${JSON.stringify(address)} counts as ${key}`, async () => {
    assert.equal(addressKey(address), key);
  });
}
