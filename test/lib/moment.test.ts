import assert from 'node:assert/strict';
import { test } from 'tap';
import { readMoment } from '../../src/lib/moment.ts';
import { readEnd } from '../../src/report/period.ts';

test('a moment is a day that the calendar has, or date, time and zone', async () => {
  for (const [text, at] of [
    ['2026-11-01', '2026-11-01T00:00:00.000Z'],
    ['2024-02-29', '2024-02-29T00:00:00.000Z'],
    ['2026-11-01T09:00Z', '2026-11-01T09:00:00.000Z'],
    ['2026-11-01 09:00:30.5+0200', '2026-11-01T07:00:30.500Z'],
    ['2026-11-01T00:30:00-05:00', '2026-11-01T05:30:00.000Z'],
  ] as const) {
    assert.equal(readMoment(text)?.toISOString(), at, text);
  }
  for (const text of [
    ...[
      '',
      '2026',
      '2026-11',
      '2026-02-29',
      '2026-13-01',
      '2026-02-30T10:00Z',
      '2026-11-01T09:00',
      '2026-11-01T25:00Z',
    ],
    ...['1.11.2026', '2026-11-01Z', ' 2026-11-01', '2026-11-01T09:00+2'],
  ]) {
    assert.equal(readMoment(text), undefined, text);
  }
});

test('a period that is named by its last day has the whole of it', async () => {
  assert.equal(readEnd('2026-11-30')?.toISOString(), '2026-12-01T00:00:00.000Z');
  assert.equal(readEnd('2026-11-30T12:00Z')?.toISOString(), '2026-11-30T12:00:00.000Z');
  assert.equal(readEnd('soon'), undefined);
});
