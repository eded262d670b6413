export interface WorkLimits {
  readonly windowMs: number;
  readonly maxUnpaidMs: number;
  readonly regainedMs: number;
  readonly maxRunning: number;
}

const WINDOW_MS = 3_600_000;
const MAX_UNPAID_SYNTHESES = 8;
const MAX_RUNNING = 256;

export const workLimits = (longestSynthesisMs: number): WorkLimits => ({
  windowMs: WINDOW_MS,
  maxUnpaidMs: MAX_UNPAID_SYNTHESES * longestSynthesisMs,
  regainedMs: longestSynthesisMs,
  maxRunning: MAX_RUNNING,
});
