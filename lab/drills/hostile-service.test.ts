/** Memory of a caller of a service that lies in every answer; HOSTILE_SEED repeats a run. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { test } from 'tap';
import { runAgainstLies } from '../../test/callers/client/hostile-rounds.ts';

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');

const LIES = 1000;
const MAX_GROWTH_BYTES = 64 * 1_048_576;

function memory(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

test('memory stays flat while a service lies a thousand times', async (t) => {
  let before: number | undefined;
  await runAgainstLies(t, LIES, () => {
    before ??= memory();
  });
  const growth = memory() - (before ?? Number.NaN);
  t.ok(growth < MAX_GROWTH_BYTES, `memory has grown by ${growth} bytes`);
});
