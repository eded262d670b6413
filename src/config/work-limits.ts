import { MAX_SPEECH_TIMEOUT_MS } from './speech-settings.ts';

export interface WorkLimits {
  readonly windowMs: number;
  readonly maxUnpaidMs: number;
  readonly regainedMs: number;
  readonly maxRunning: number;
}

/** How long a process may keep a hold without renewing it (R55). */
export const holdLeaseSeconds = (speechTimeoutMs: number): number => Math.ceil(speechTimeoutMs / 1000) + 30;

/** That of the longest SPEECH_TIMEOUT_MS: processes beside each other may have different ones. */
export const MAX_HOLD_LEASE_SECONDS = holdLeaseSeconds(MAX_SPEECH_TIMEOUT_MS);

/** No new hold is placed while this many captures wait for the database (R55). */
export const MAX_WAITING_CAPTURES = 10_000;
const WINDOW_MS = 3_600_000;
const MAX_UNPAID_SYNTHESES = 8;
const MAX_RUNNING = 256;

export const workLimits = (longestSynthesisMs: number): WorkLimits => ({
  windowMs: WINDOW_MS,
  maxUnpaidMs: MAX_UNPAID_SYNTHESES * longestSynthesisMs,
  regainedMs: longestSynthesisMs,
  maxRunning: MAX_RUNNING,
});
