import assert from 'node:assert/strict';
import { test } from 'tap';
import { drill } from '../../lab/ha/drill.ts';
import { withoutPrograms } from '../../lab/ha/place.ts';
import { testChain } from '../../test/support/chain.ts';

const { chain, skip } = await testChain();

/** The primary is replaced within some seconds; a caller's last error comes a moment later, on a busy machine too. */
const LONGEST_ERRORS_S = 60;

test('docs/scaling.md: killing primary, gateway and PgBouncer loses no payment', {
  skip: withoutPrograms || skip,
}, async (t) => {
  const { figures, contradictions, audit, served } = await drill(t, chain, {
    replication: 'synchronous',
    pooling: { mode: 'transaction', namedStatements: false, pgbouncer: 'pgbouncer' },
    faults: ['postgres', 'gateway one', 'pgbouncer'],
    calmMs: 4_000,
    pauseMs: 300,
    progress: (message) => t.comment(message),
  });
  t.comment(JSON.stringify(figures));
  assert.deepEqual(contradictions, []);
  assert.equal(audit.code, 0, audit.output);
  for (const flow of ['card', 'card, streamed', 'job', 'top-up, completed', 'direct', 'deposit', 'prepaid']) {
    assert.ok((served[flow] ?? 0) > 0, `${flow} was served`);
  }
  for (const { fault, errorSeconds } of figures) {
    assert.ok(errorSeconds < LONGEST_ERRORS_S, `${fault}: errors for ${errorSeconds} s`);
  }
  assert.equal(figures.find(({ fault }) => fault === 'gateway one')?.errors, 0, 'a replacement is not noticed');
});

test('docs/scaling.md: asynchronous replication loses only its last commits', {
  skip: withoutPrograms || skip,
}, async (t) => {
  const { contradictions, audit, served } = await drill(t, chain, {
    replication: 'asynchronous',
    pooling: { mode: 'transaction', namedStatements: false, pgbouncer: 'pgbouncer' },
    faults: ['lost commits'],
    calmMs: 4_000,
    pauseMs: 300,
    progress: (message) => t.comment(message),
  });
  assert.deepEqual(contradictions, []);
  assert.equal(audit.code, 0, audit.output);
  t.comment(JSON.stringify(served));
});
