import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Owner } from '../../test/support/child.ts';
import { Crew } from './callers/crew.ts';
import type { Observe } from './callers/line.ts';
import { FaultSchedule, type Struck } from './faults/schedule.ts';
import { judge, type Verdict } from './judge/judge.ts';
import type { SoakOptions } from './options.ts';
import { ToldLog } from './told-log.ts';
import { openWorld } from './world/open-world.ts';
import type { Service } from './world/world.ts';

const TELL_EVERY_MS = 15_000;
const MINUTE_MS = 60_000;

export interface Run {
  readonly verdict: Verdict;
  readonly faults: readonly Struck[];
  readonly operations: number;
  readonly requests: number;
  readonly seconds: number;
  /** Path of the callers' records. */
  readonly told: string;
}

export interface RunOptions {
  readonly seed: string;
  readonly callers: number;
  readonly observe?: Observe;
  /**
   * Breaks parts while callers work, and ends when they run again. An error ends the run.
   * @param now milliseconds since the start of the run
   */
  readonly breakParts: (now: () => number) => Promise<readonly Struck[]>;
  /** Runs before callers and books are compared. */
  readonly beforeJudging?: () => Promise<unknown>;
}

/** Runs callers of all flows while parts break, until they know how each of their operations ended, and judges. */
export async function runCallers(owner: Owner, world: Service, options: RunOptions): Promise<Run> {
  const { breakParts, beforeJudging, ...crewOptions } = options;
  const begunAt = performance.now();
  const now = () => performance.now() - begunAt;
  const wallTime = (ms: number) => performance.timeOrigin + begunAt + ms;
  const log = new ToldLog(join(await mkdtemp(join(tmpdir(), 'speechgate-soak-told-')), 'told.jsonl'), wallTime);
  let phase = 'callers buy credit';
  const tell = () =>
    console.error(`${Math.round(now() / 1000)} s  ${phase}  ${log.count} operations, ${log.requests} requests`);
  const telling = setInterval(tell, TELL_EVERY_MS);
  owner.teardown(() => clearInterval(telling));
  const crew = await Crew.open({ world, ...crewOptions, now, tell: log.add });
  owner.teardown(() => crew.close());

  phase = 'callers work';
  const openedAt = now();
  const isOver = new AbortController();
  const working = crew.work(isOver.signal);
  const faults = await Promise.race([breakParts(now), working.then(() => [])]);
  phase = 'callers learn the ends';
  isOver.abort();
  await working;
  const seconds = (now() - openedAt) / 1000;
  await log.close();
  await beforeJudging?.();
  const deaths = faults.flatMap(({ buries, from, until }) =>
    buries.map((gateway) => ({ gateway, from: wallTime(from), until: wallTime(until) })),
  );
  const verdict = await judge(world, log.path, deaths, (words) => {
    phase = `judging: ${words}`;
  });
  clearInterval(telling);
  return { verdict, faults, operations: log.count, requests: log.requests, seconds, told: log.path };
}

/** Runs callers against a world whose parts break. */
export async function soak({ seed, callers, minutes, target, hasFaults }: SoakOptions, owner: Owner): Promise<Run> {
  const world = await openWorld(owner);
  const breakParts = async (now: () => number) => {
    const schedule = new FaultSchedule(world, seed, now, target);
    const enough = sleep(minutes * MINUTE_MS);
    await Promise.race([enough, ...(hasFaults ? [schedule.begin()] : [])]).finally(() => schedule.stop());
    return schedule.struck;
  };
  return runCallers(owner, world, { seed, callers, breakParts });
}
