/** Attempts at one job, those included that ended with their process. */
export const MAX_ATTEMPTS = 5;
/** No attempt begins later than this after the first one. */
export const MAX_ELAPSED_MS = 15 * 60_000;
const FIRST_DELAY_MS = 1_000;
const GROWTH = 3;

/**
 * How long to wait, in milliseconds, before a transient fault's job is tried again; undefined when it is not. Waits
 * grow from 1 s threefold, by up to a quarter more at random, and are never shorter than what the provider asked for.
 * @param attempt number of the attempt that failed, from 1 on
 * @param elapsedMs since the first attempt began
 * @param random from 0 to 1
 */
export function retryDelayMs(
  attempt: number,
  elapsedMs: number,
  retryAfterSeconds: number | undefined,
  random: number,
): number | undefined {
  if (attempt >= MAX_ATTEMPTS) return undefined;
  const backoff = FIRST_DELAY_MS * GROWTH ** (attempt - 1) * (1 + random / 4);
  const delay = Math.max(backoff, (retryAfterSeconds ?? 0) * 1000);
  return elapsedMs + delay <= MAX_ELAPSED_MS ? delay : undefined;
}
