import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

const TIMEOUT_MS = 60_000;
const FIRST_POLL_MS = 10;
const LONGEST_POLL_MS = 200;

/** Waits for a condition that something else brings about, and fails when it does not come. */
export async function until(
  condition: () => Promise<boolean> | boolean,
  timeoutMs: number = TIMEOUT_MS,
): Promise<void> {
  const begunAt = performance.now();
  while (!(await condition())) {
    const waitedMs = performance.now() - begunAt;
    assert.ok(waitedMs < timeoutMs, `waited ${timeoutMs} ms for ${condition}`);
    // What takes a minute, such as a lease, need not be asked 100 times a second.
    await sleep(Math.min(FIRST_POLL_MS + waitedMs / 50, LONGEST_POLL_MS));
  }
}
