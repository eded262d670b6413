import assert from 'node:assert/strict';
import { test } from 'tap';
import { parseRange } from '../../src/audio/range.ts';

const cases: { header: string | undefined; size?: number; expected: ReturnType<typeof parseRange>; why: string }[] = [
  { header: undefined, expected: 'whole', why: 'no header' },
  { header: 'bytes=0-499', expected: { start: 0, end: 499 }, why: 'first and last byte' },
  { header: 'bytes=500-999', expected: { start: 500, end: 999 }, why: 'up to the last byte' },
  { header: 'bytes=0-0', expected: { start: 0, end: 0 }, why: 'one byte' },
  { header: 'bytes=999-999', expected: { start: 999, end: 999 }, why: 'the last byte alone' },
  { header: 'bytes=0-', expected: { start: 0, end: 999 }, why: 'from the first byte on' },
  { header: 'bytes=950-', expected: { start: 950, end: 999 }, why: 'from a byte on' },
  { header: 'bytes=900-5000', expected: { start: 900, end: 999 }, why: 'the end is cut to the size' },
  { header: 'bytes=-50', expected: { start: 950, end: 999 }, why: 'the last bytes' },
  { header: 'bytes=-1000', expected: { start: 0, end: 999 }, why: 'a suffix of the whole size' },
  { header: 'bytes=-5000', expected: { start: 0, end: 999 }, why: 'a suffix longer than the whole' },
  { header: 'bytes=007-0010', expected: { start: 7, end: 10 }, why: 'leading zeros' },
  { header: `bytes=0-${'9'.repeat(400)}`, expected: { start: 0, end: 999 }, why: 'an end beyond every number' },
  { header: `bytes=-${'9'.repeat(400)}`, expected: { start: 0, end: 999 }, why: 'a suffix beyond every number' },
  { header: 'Bytes=1-2', expected: { start: 1, end: 2 }, why: 'the unit has no letter case' },
  { header: 'bytes= 1-2 ', expected: { start: 1, end: 2 }, why: 'white space around an element' },
  { header: 'bytes=,1-2,', expected: { start: 1, end: 2 }, why: 'empty elements of a list do not count' },

  { header: 'bytes=1000-', expected: 'unsatisfiable', why: 'begins at the end' },
  { header: 'bytes=1000-1001', expected: 'unsatisfiable', why: 'begins past the end' },
  { header: `bytes=${'9'.repeat(400)}-`, expected: 'unsatisfiable', why: 'begins beyond every number' },
  { header: 'bytes=-0', expected: 'unsatisfiable', why: 'a suffix of no bytes' },
  { header: 'bytes=0-', size: 0, expected: 'unsatisfiable', why: 'an empty object has no first byte' },
  { header: 'bytes=-5', size: 0, expected: 'whole', why: 'a suffix of an empty object is all of it' },

  { header: 'bytes=0-1,5-6', expected: 'whole', why: 'more than one range' },
  { header: 'bytes=0-1, -5', expected: 'whole', why: 'more than one range, one a suffix' },
  { header: 'seconds=0-1', expected: 'whole', why: 'another unit' },
  { header: 'bytes=5-4', expected: 'whole', why: 'the last before the first is invalid, so ignored' },
  { header: 'bytes=2000-1500', expected: 'whole', why: 'invalid, wherever it begins' },
  { header: 'bytes=', expected: 'whole', why: 'no range at all' },
  { header: 'bytes=-', expected: 'whole', why: 'a range without a number' },
  { header: 'bytes=a-b', expected: 'whole', why: 'no numbers' },
  { header: 'bytes=1-2-3', expected: 'whole', why: 'too many numbers' },
  { header: 'bytes=1.5-3', expected: 'whole', why: 'no whole number' },
  { header: 'bytes=+1-3', expected: 'whole', why: 'a sign' },
  { header: 'bytes=1 - 3', expected: 'whole', why: 'white space inside' },
  { header: 'bytes 1-3', expected: 'whole', why: 'no equals sign' },
  { header: 'bytes =1-3', expected: 'whole', why: 'white space before the equals sign' },
  { header: '', expected: 'whole', why: 'an empty header' },
];

for (const { header, size = 1000, expected, why } of cases) {
  const shown = header !== undefined && header.length > 60 ? `${header.slice(0, 20)}…` : header;
  test(`RFC 9110 section 14: ${shown} of ${size} bytes: ${why}`, async () => {
    assert.deepEqual(parseRange(header, size), expected);
  });
}
