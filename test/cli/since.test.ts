import assert from 'node:assert/strict';
import { test } from 'tap';
import { formatAge, readSince } from '../../src/cli/since.ts';

const NOW = new Date('2026-11-23T12:00:00Z');

test('a moment is a day, a time, or how long ago', async () => {
  for (const [text, at] of [
    ['36h', '2026-11-22T00:00:00.000Z'],
    ['90min', '2026-11-23T10:30:00.000Z'],
    ['7d', '2026-11-16T12:00:00.000Z'],
    ['2026-11-01', '2026-11-01T00:00:00.000Z'],
    ['2026-11-01T09:00:00+02:00', '2026-11-01T07:00:00.000Z'],
  ] as const) {
    assert.equal(readSince(text, NOW)?.toISOString(), at);
  }
  for (const text of ['yesterday', '7', '-1d', '2026-13-01', '2026-11-01T09:00', '1e3d']) {
    assert.equal(readSince(text, NOW), undefined, text);
  }
});

test('an age is told in its largest unit', async () => {
  assert.deepEqual([0, 59, 60, 7_199, 3 * 86_400].map(formatAge), ['0 s', '59 s', '1 min', '1 h', '3 d']);
});
