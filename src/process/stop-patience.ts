import type { Config } from '../settings/config.ts';

/** What stopping may take beyond the slowest synthesis. */
const STOP_RESERVE_MS = 30_000;

/** How long a process may take to stop before it ends all the same, in milliseconds. */
export const stopPatienceMs = ({ speech, stopDrainMs }: Config): number =>
  stopDrainMs + (speech?.timeoutMs ?? 0) + STOP_RESERVE_MS;
