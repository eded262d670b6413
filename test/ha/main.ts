/**
 * `npm run drill:ha -- [--mode session|transaction] [--names] [--pgbouncer PROGRAM] [--rounds N]`: the full drill, which
 * takes some minutes a round. Prints what callers saw, and exits with 1 when they and the books disagree.
 */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { t as root, test } from 'tap';
import { testChain } from '../support/chain.ts';
import { type DrillOptions, drill } from './drill.ts';
import { withoutPrograms } from './place.ts';

const HOUR_MS = 3_600_000;
const ROUND = ['postgres', 'gateway one', 'machine', 'gateway two', 'pgbouncer'] as const;

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'transaction' },
    /** Named statements in transaction mode, which PgBouncer knows from 1.21 on. */
    names: { type: 'boolean', default: false },
    pgbouncer: { type: 'string', default: 'pgbouncer' },
    rounds: { type: 'string', default: '2' },
  },
});
const mode = values.mode === 'session' ? 'session' : 'transaction';
root.setTimeout(HOUR_MS);
const { chain, skip } = await testChain();

test(`the drill, PgBouncer in ${mode} mode`, { skip: withoutPrograms || skip, timeout: HOUR_MS }, async (t) => {
  const begunAt = performance.now();
  const options: DrillOptions = {
    pooling: { mode, namedStatements: values.names || mode === 'session', pgbouncer: values.pgbouncer },
    faults: Array.from({ length: Number(values.rounds) }, () => ROUND).flat(),
    calmMs: 15_000,
    pauseMs: 100,
    progress: (message) => console.error(`${Math.round((performance.now() - begunAt) / 1000)} s  ${message}`),
  };
  const result = await drill(t, chain, options);
  console.table(result.figures);
  console.table(result.served);
  console.table(result.errors);
  console.log(result.audit.output);
  assert.deepEqual(result.contradictions, []);
  assert.equal(result.audit.code, 0);
});
