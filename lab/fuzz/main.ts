/**
 * `npm run lab -- fuzz [--requests N] [--seed S]`: sends N requests to its own gateway and checks each response against the
 * contract. A failure prints a command that repeats its shrunk case. Exits with 1 on a failure, on growth of memory or
 * descriptors, or if the books disagree.
 */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { t as root, test } from 'tap';
import { fuzz, type Kind } from './fuzz.ts';
import { assertSound, print } from './report.ts';

const LONGEST_MS = 6 * 3_600_000;

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '100000' },
    seed: { type: 'string', default: '1' },
    /** Kind of the failure to repeat, with `path`. */
    kind: { type: 'string' },
    path: { type: 'string' },
  },
});
root.setTimeout(LONGEST_MS);

test(`${values.requests} requests, seed ${values.seed}`, { timeout: LONGEST_MS }, async (t) => {
  const begunAt = performance.now();
  const result = await fuzz(t, {
    requests: Number(values.requests),
    seed: Number(values.seed),
    ...(values.kind && values.path && { again: { kind: values.kind as Kind, path: values.path } }),
    progress: (message) => console.error(`${Math.round((performance.now() - begunAt) / 1000)} s  ${message}`),
  });
  print(result);
  assertSound(result);
  assert.ok(values.path || result.figures.total >= Number(values.requests), 'as many as were asked for');
});
