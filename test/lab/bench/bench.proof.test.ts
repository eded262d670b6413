import assert from 'node:assert/strict';
import { readFile, rm } from 'node:fs/promises';
import { test } from 'tap';
import { startChild } from '../../support/child.ts';

const TIMEOUT_MS = 600_000;

test('the benchmark measures every flow, and the audit passes', async (t) => {
  // Without the peers, which are installed from the registry.
  const child = startChild(t, 'lab/bench/main.ts', {}, [
    '--quick',
    'bare',
    'prebuilt',
    'overload',
    '--node',
    process.execPath,
  ]);
  const [, file] = (await child.printed(/All figures are in (.+\.json)\./, TIMEOUT_MS)) as unknown as [string, string];
  assert.equal(await child.ended(), 0);
  const { throughput, overload } = JSON.parse(await readFile(file, 'utf8'));
  await rm(file);
  assert.deepEqual(
    throughput.map(({ name }: { name: string }) => name),
    ['bare', 'prebuilt'],
  );
  for (const { requestsPerSecond, cpuMs } of throughput) assert.ok(requestsPerSecond.min > 0 && cpuMs.min > 0);
  for (const { servedPerSecond, chargedButNotServed } of overload)
    assert.ok(servedPerSecond > 0 && chargedButNotServed === 0);
});

test('an unknown name ends the benchmark before anything starts', async (t) => {
  const child = startChild(t, 'lab/bench/main.ts', {}, ['--quick', 'cards']);
  assert.equal(await child.ended(), 1);
  assert.match(child.output(), /There is no cards\. There are: bare, .+, first-byte, overload\./);
});
