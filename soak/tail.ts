import type { Struck } from './faults/schedule.ts';
import { argumentsOf, type SoakOptions } from './options.ts';
import { isClean, printFailure, printRun } from './report.ts';
import type { Run } from './run.ts';
import type { Told } from './told.ts';
import { readTold } from './told-log.ts';

/** How long the first window is, before the end of the operation that failed; each next one is half or twice as long. */
const FIRST_MS = 20_000;
const SHORTEST_MS = 2_500;
/** A run that is shorter than this after the failing operation may not show what it has broken. */
const AFTER_MS = 5_000;
const TRIES = 6;

/** Looks for the shortest run that still fails: one that begins shortly before the first operation that did. */
export async function findTail(
  run: Run,
  options: SoakOptions,
  soakOnce: (options: SoakOptions) => Promise<Run>,
): Promise<void> {
  const failed = run.verdict.contradictions.flatMap(({ operation }) => operation ?? []);
  const [earliest] = failed.sort((one, other) => one.ended_at - other.ended_at);
  if (!earliest) return console.log('No operation belongs to what differs: there is no shorter run to be tried.');
  const first = earliest;
  const told: Told[] = [];
  for await (const each of readTold(run.told)) told.push(each);
  let found: { readonly options: SoakOptions; readonly run: Run } | undefined;
  let windowMs = FIRST_MS;
  for (let tries = 1; tries <= TRIES; tries++) {
    const shorter = windowOf(windowMs);
    console.log(`\n${tries} of ${TRIES}: the ${windowMs / 1000} s before it\nnpm run soak -- ${argumentsOf(shorter)}`);
    const again = await soakOnce(shorter);
    const fails = !isClean(again.verdict);
    console.log(fails ? 'fails' : 'does not fail');
    if (fails) found = { options: shorter, run: again };
    if (fails ? windowMs <= SHORTEST_MS : found !== undefined) break;
    windowMs = fails ? windowMs / 2 : windowMs * 2;
    if (first.ended_at < windowMs / 2) break;
  }
  if (!found) return console.log('No shorter run has failed.');
  console.log('\nThe shortest run that failed:');
  printRun(found.run);
  printFailure(found.run, found.options);

  function windowOf(ms: number): SoakOptions {
    const begin = Math.max(0, first.ended_at - ms);
    const next = new Map<string, number>(options.from);
    for (const { caller, number, from } of told) {
      if (number < 0 || from >= begin) continue;
      const kind = caller.replace(/ \d+$/, '');
      for (const name of caller === first.caller ? [caller, kind] : [kind]) {
        next.set(name, Math.max(next.get(name) ?? 0, number));
      }
    }
    const faultsFrom = firstTurn(run.faults, begin, options.faultsFrom);
    return {
      ...{ ...options, from: next, faultsFrom, operations: Number.POSITIVE_INFINITY },
      milliseconds: first.ended_at - begin + AFTER_MS,
    };
  }
}

/**
 * The turn with which the faults of a shorter run begin: the first one of which something was still broken.
 * @param begin milliseconds, by the clock of the run
 * @param from the turn with which the faults of the whole run began
 */
export function firstTurn(faults: readonly Struck[], begin: number, from: number): number {
  const left = faults.filter(({ until }) => until >= begin).map(({ number }) => number);
  const done = faults.filter(({ until }) => until < begin).map(({ number }) => number + 1);
  return left.length > 0 ? Math.min(...left) : Math.max(from, ...done);
}
