import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'tap';
import { RefusalPace } from '../../src/http/refusal-pace.ts';
import { until } from '../support/until.ts';

function start() {
  const written: ServerResponse[] = [];
  const pace = new RefusalPace((response) => written.push(response));
  const refuse = (count: number, destroyed = false) => {
    const responses = Array.from({ length: count }, () => ({ destroyed }) as ServerResponse);
    for (const response of responses) pace.refuse(response);
    return responses;
  };
  return { written, pace, refuse };
}

test('a few refusals are written at once, many at a pace and in their turn, and none to who has left', async () => {
  const { written, refuse } = start();
  const few = refuse(20);
  assert.deepEqual(written, few);
  const more = [refuse(30), refuse(5, true), refuse(30)] as const;
  assert.equal(written.length, 20, 'the others wait');
  await until(() => written.length === 80);
  assert.deepEqual(written, [...few, ...more[0], ...more[2]]);
});

test('what waits is bounded, and written at the end', async () => {
  const { written, pace, refuse } = start();
  refuse(20 + 8_192);
  assert.equal(written.length, 20);
  const last = refuse(1);
  assert.deepEqual(written.slice(20), last);
  pace.close();
  assert.equal(written.length, 20 + 8_192 + 1);
});
