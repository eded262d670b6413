import assert from 'node:assert/strict';
import { test } from 'tap';
import { ASYNC_TEXT_LENGTH, isAsynchronous } from '../../src/jobs/asynchronous.ts';

test('R6: a request is asynchronous when it asks for it, or from 20000 characters on', async () => {
  assert.equal(ASYNC_TEXT_LENGTH, 20_000);
  const rows: [asked: boolean, characters: number, expected: boolean][] = [
    [false, 1, false],
    [false, 4096, false],
    [false, 19_999, false],
    [false, 20_000, true],
    [false, 20_001, true],
    [true, 1, true],
    [true, 20_000, true],
  ];
  for (const [asked, characters, expected] of rows) {
    assert.equal(isAsynchronous(asked, characters), expected, `${asked}, ${characters} characters`);
  }
});
