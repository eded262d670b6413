import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

const PATIENCE_MS = 60_000;
const POLL_MS = 10;

/** Waits for a condition that something else brings about, and fails when it does not come. */
export async function until(
  condition: () => Promise<boolean> | boolean,
  patienceMs: number = PATIENCE_MS,
): Promise<void> {
  const giveUpAt = performance.now() + patienceMs;
  while (!(await condition())) {
    assert.ok(performance.now() < giveUpAt, `waited ${patienceMs} ms for ${condition}`);
    await sleep(POLL_MS);
  }
}
