import assert from 'node:assert/strict';
import { test } from 'tap';
import { currentPayee, PayeeError, parsePayees, payablePayees } from '../../src/x402/payees.ts';

const A = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const B = '0xcA11bde05977b3631167028862bE2a173976CA11';
const C = '0x4200000000000000000000000000000000000006';

test('one address is the current payee, with its checksum', async () => {
  assert.deepEqual(parsePayees(A.toLowerCase()), [
    { address: A, status: 'current', validFrom: undefined, validUntil: undefined },
  ]);
});

test('a rotation list has statuses and dates; retiring payees are payable until they end', async () => {
  const payees = parsePayees(`${A}:current:2026-01-01, ${B}:retiring::2026-03-01,${C}:next:2026-06-01`);
  assert.equal(currentPayee(payees).address, A);
  assert.equal(payees[0]?.validFrom?.toISOString(), '2026-01-01T00:00:00.000Z');
  const payable = (date: string) => payablePayees(payees, new Date(date)).map(({ address }) => address);
  assert.deepEqual(payable('2026-02-28T23:59:59Z'), [A, B]);
  assert.deepEqual(payable('2026-03-01T00:00:00Z'), [A]);
});

const FAULTS: [string, string][] = [
  ['no address', 'alice.eth'],
  ['an empty entry', `${A},`],
  ['a wrong checksum', A.replace('fCD6', 'fcD6')],
  ['an unknown status', `${A}:former`],
  ['a date that is none', `${A}:current:2026-02-30`],
  ['a date of another form', `${A}:current:01/02/2026`],
  ['an end before its beginning', `${A}:current:2026-02-01:2026-01-01`],
  ['an address twice', `${A},${A.toLowerCase()}:next`],
  ['two current payees', `${A},${B}`],
  ['no current payee', `${A}:next`],
  ['more than four parts', `${A}:current:::`],
];

for (const [name, setting] of FAULTS) {
  test(`${name}: PayeeError`, async () => {
    assert.throws(() => parsePayees(setting), PayeeError);
  });
}
