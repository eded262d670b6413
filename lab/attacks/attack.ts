import type { Attempt } from './attempt.ts';
import type { Target } from './targets/target.ts';

/**
 * Acceptable responses besides a 200 with the requested goods. `refused`: any 4xx. `failed`: also any 5xx, for faults
 * in other parts. `broken`: also a connection that the attack itself cuts.
 */
export type Right = 'served' | 'refused' | 'failed' | 'broken';

export interface Attack {
  readonly name: string;
  readonly right: Right;
  /** Its tries mostly wait for other parts, so more of them run at once. */
  readonly waits?: true;
  /** The target restarts before each batch of this many tries. They run at once, and `meanwhile` runs when all wait. */
  readonly atOnce?: number;
  readonly meanwhile?: (target: Target) => Promise<unknown>;
  /** One try. An exception counts as a wrong status. */
  attempt(attempt: Attempt): Promise<unknown>;
}
