import { setTimeout as sleep } from 'node:timers/promises';
import { faultOf } from '../db/database-errors.ts';
import { type Check, type Finding, fault, skipped } from './check.ts';

/** Longest time of a check that names none of its own. */
const LIMIT_MS = 20_000;

/** What a check has found, and which one that was. */
export interface Checked extends Finding {
  readonly name: string;
  readonly about?: string;
}

/**
 * Runs all checks at once, and tells of each one in their order, as soon as it and those before it have ended. None of
 * them throws, and none takes longer than its limit.
 * @param left names of those that are not to be run
 */
export async function* runChecks(checks: readonly Check[], left: ReadonlySet<string>): AsyncGenerator<Checked> {
  const running = checks.map(async ({ name, about, limitMs = LIMIT_MS, run }): Promise<Checked> => {
    const finding = left.has(name) ? skipped('It was left out as asked for.') : await judged(run, limitMs);
    return { name, ...(about !== undefined && { about }), ...finding };
  });
  for (const checked of running) yield await checked;
}

async function judged(run: () => Promise<Finding>, limitMs: number): Promise<Finding> {
  const enough = new AbortController();
  const late = async () => {
    await sleep(limitMs, undefined, { signal: enough.signal });
    const fix = 'Find out what it waits for: the network between, or a part that hangs.';
    return fault(`There was no answer within ${limitMs / 1000} s.`, fix);
  };
  try {
    return await Promise.race([run(), late()]);
  } catch (error) {
    const told = error instanceof Error ? faultOf(error) : undefined;
    return fault(`It could not be checked: ${told ?? 'something unexpected happened'}.`, 'Mend what the message says.');
  } finally {
    enough.abort();
  }
}
