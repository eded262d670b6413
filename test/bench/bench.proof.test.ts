import assert from 'node:assert/strict';
import { readFile, rm } from 'node:fs/promises';
import { test } from 'tap';
import { startChild } from '../support/child.ts';

const PATIENCE_MS = 120_000;

test('the benchmark measures every flow of the gateway, and finds the books in order', async (t) => {
  // Without the peers, which are installed from the registry.
  const child = startChild(t, 'bench/main.ts', {}, ['--quick', 'bare', 'prebuilt', 'memory']);
  const [, file] = (await child.printed(/All figures are in (.+\.json)\./, PATIENCE_MS)) as unknown as [string, string];
  assert.equal(await child.ended(), 0);
  const { throughput, memory } = JSON.parse(await readFile(file, 'utf8'));
  await rm(file);
  assert.deepEqual(
    throughput.map(({ name }: { name: string }) => name),
    ['bare', 'prebuilt'],
  );
  for (const { requestsPerSecond, cpuMs } of throughput) assert.ok(requestsPerSecond.min > 0 && cpuMs.min > 0);
  assert.equal(memory.length, 4);
});

test('what it does not know it names, before it starts anything', async (t) => {
  const child = startChild(t, 'bench/main.ts', {}, ['--quick', 'cards']);
  assert.equal(await child.ended(), 1);
  assert.match(child.output(), /There is no cards\. There are: bare, .+, memory, overload\./);
});
