export interface WorkLimits {
  readonly windowMs: number;
  readonly maxUnpaidMs: number;
  readonly regainedMs: number;
  readonly maxRunning: number;
}

/** How long a process may keep a hold without renewing it. */
export const HOLD_LEASE_SECONDS = 60;
const WINDOW_MS = 3_600_000;
const MAX_UNPAID_SYNTHESES = 8;
const MAX_RUNNING = 256;

export const workLimits = (longestSynthesisMs: number): WorkLimits => ({
  windowMs: WINDOW_MS,
  maxUnpaidMs: MAX_UNPAID_SYNTHESES * longestSynthesisMs,
  regainedMs: longestSynthesisMs,
  maxRunning: MAX_RUNNING,
});
