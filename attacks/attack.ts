import type { Attempt } from './attempt.ts';
import type { Target } from './targets/target.ts';

/**
 * Which answers are right, beside a 200 with what was asked for: `refused` is any 4xx, and `failed` any 5xx too, which
 * only a fault in another part excuses. A connection that ends before its answer is right only where the attack ends it.
 */
export type Right = 'served' | 'refused' | 'failed' | 'broken';

/** An attack on payment by x402, or a fault during it. */
export interface Attack {
  /** The row of the table. */
  readonly name: string;
  readonly right: Right;
  /** Tries of it wait for other parts most of the time. */
  readonly waits?: true;
  /**
   * Tries of it can't run beside other attacks on the target: it is started anew for each so many of them, which then
   * run all at once, and `meanwhile` happens once all are where they wait for it.
   */
  readonly atOnce?: number;
  readonly meanwhile?: (target: Target) => Promise<unknown>;
  /** One try. What it throws is a wrong answer. */
  attempt(attempt: Attempt): Promise<unknown>;
}
