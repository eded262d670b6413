/**
 * `npm run fuzz -- [--requests N] [--seed S]`: sends so many requests to a gateway of its own, and holds each answer against
 * the contract. A failure prints a command that sends its shrunk request again. Exits with 1 when there is one, or when
 * memory or descriptors grew, or the books disagree.
 */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { t as root, test } from 'tap';
import { testChain } from '../support/chain.ts';
import { fuzz, type Kind } from './fuzz.ts';
import { assertSound, print } from './report.ts';

const LONGEST_MS = 6 * 3_600_000;

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '100000' },
    seed: { type: 'string', default: '1' },
    /** Of a failure, with `path`: the kind of its requests. */
    kind: { type: 'string' },
    path: { type: 'string' },
  },
});
root.setTimeout(LONGEST_MS);
const { chain, skip } = await testChain();

test(`${values.requests} requests, seed ${values.seed}`, { skip, timeout: LONGEST_MS }, async (t) => {
  const begunAt = performance.now();
  const result = await fuzz(t, chain, {
    requests: Number(values.requests),
    seed: Number(values.seed),
    ...(values.kind && values.path && { again: { kind: values.kind as Kind, path: values.path } }),
    progress: (message) => console.error(`${Math.round((performance.now() - begunAt) / 1000)} s  ${message}`),
  });
  print(result);
  assertSound(result);
  assert.ok(values.path || result.figures.total >= Number(values.requests), 'as many as were asked for');
});
