import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { test } from 'tap';
import { openClient } from './client.ts';
import { differences } from './differences.ts';
import { FLOWS } from './flows.ts';
import { type Costs, MEASURED, measure, WARM_UP } from './measure.ts';
import { startWorld } from './world.ts';

const RECORDED = new URL('recorded.json', import.meta.url);
const skip = process.platform === 'linux' ? false : 'only Linux tells the system calls of a process (/proc/PID/io)';

test('a request of each flow takes what is recorded of it in test/costs/recorded.json', { skip }, async (t) => {
  const world = await startWorld(t, WARM_UP + MEASURED);
  const client = await openClient(t, world.gateway.url);
  const measured: Record<string, Costs> = {};
  for (const [name, flow] of Object.entries(FLOWS)) measured[name] = await measure(world, client, flow);
  if (process.env.RECORD_COSTS) await writeFile(RECORDED, `${JSON.stringify(measured, null, 2)}\n`);
  const recorded: Record<string, Costs> = JSON.parse(await readFile(RECORDED, 'utf8'));
  const found = differences(recorded, measured);
  assert.ok(
    found.length === 0,
    `${found.join('\n')}\nIf this is meant, record it: RECORD_COSTS=1 npm run test:proof -- test/costs`,
  );
});
