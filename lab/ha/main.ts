/**
 * `npm run lab -- ha [--mode session|transaction] [--names] [--pgbouncer PROGRAM] [--rounds N]
 * [--asynchronous]`: the full drill, a few minutes for each round. Exits with 1 when callers and books disagree.
 */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { t as root, test } from 'tap';
import { isClean, printFailure, printRun } from '../soak/report.ts';
import { type DrillOptions, drill } from './drill.ts';
import { withoutPrograms } from './place.ts';

const HOUR_MS = 3_600_000;
const ROUND = ['postgres', 'gateway one', 'machine', 'gateway two', 'pgbouncer'] as const;
const LOSSY_ROUND = ['lost commits', 'gateway one'] as const;

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'transaction' },
    /** Named statements in transaction mode. Needs PgBouncer 1.21 or later. */
    names: { type: 'boolean', default: false },
    pgbouncer: { type: 'string', default: 'pgbouncer' },
    rounds: { type: 'string', default: '2' },
    /** Asynchronous replication: the last commits are lost with the primary. */
    asynchronous: { type: 'boolean', default: false },
  },
});
const mode = values.mode === 'session' ? 'session' : 'transaction';
root.setTimeout(HOUR_MS);

test(`the drill, PgBouncer in ${mode} mode`, { skip: withoutPrograms, timeout: HOUR_MS }, async (t) => {
  const begunAt = performance.now();
  const options: DrillOptions = {
    pooling: { mode, namedStatements: values.names || mode === 'session', pgbouncer: values.pgbouncer },
    replication: values.asynchronous ? 'asynchronous' : 'synchronous',
    faults: Array.from({ length: Number(values.rounds) }, () => (values.asynchronous ? LOSSY_ROUND : ROUND)).flat(),
    calmMs: 15_000,
    callers: 10,
    progress: (message) => console.error(`${Math.round((performance.now() - begunAt) / 1000)} s  ${message}`),
  };
  const { run, figures, errors } = await drill(t, options);
  console.table(figures);
  console.table(errors);
  printRun(run);
  printFailure(run);
  assert.ok(isClean(run.verdict), 'callers and books agree');
});
