import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Owner } from '../../test/support/child.ts';
import { Crew } from './callers/crew.ts';
import { FaultSchedule, type Struck } from './faults/schedule.ts';
import { judge, type Verdict } from './judge/judge.ts';
import type { SoakOptions } from './options.ts';
import { ToldLog } from './told-log.ts';
import { openWorld } from './world/open-world.ts';
import type { World } from './world/world.ts';

const LOOK_EVERY_MS = 1_000;

export interface Progress {
  readonly phase: string;
  readonly seconds: number;
  readonly operations: number;
  readonly requests: number;
  readonly open: number;
  readonly fault: string | undefined;
  readonly faults: number;
}

export interface Run {
  readonly verdict: Verdict;
  readonly faults: readonly Struck[];
  readonly operations: number;
  readonly requests: number;
  readonly seconds: number;
  /** Path of the callers' records. */
  readonly told: string;
  /** Stays up until its owner closes. */
  readonly world: World;
}

/** Runs callers against a world whose parts break, waits for recovery, and judges the result. */
export async function soak(options: SoakOptions, owner: Owner, progress: (progress: Progress) => void): Promise<Run> {
  const { seed } = options;
  let phase = 'starting the world';
  let crew: Crew | undefined;
  let schedule: FaultSchedule | undefined;
  const begunAt = performance.now();
  const wallTime = (ms: number) => performance.timeOrigin + begunAt + ms;
  const now = () => performance.now() - begunAt;
  const log = new ToldLog(join(await mkdtemp(join(tmpdir(), 'speechgate-soak-told-')), 'told.jsonl'), wallTime);
  const tell = () =>
    progress({
      ...{ phase, seconds: now() / 1000, operations: log.count, requests: log.requests, open: crew?.open ?? 0 },
      ...{ fault: schedule?.current, faults: schedule?.struck.length ?? 0 },
    });
  const telling = setInterval(tell, LOOK_EVERY_MS);
  owner.teardown(() => clearInterval(telling));

  const world = await openWorld(owner);
  phase = 'callers buy credit';
  crew = await Crew.open({ world, seed, sizes: options.callers, now, tell: log.add });
  owner.teardown(() => crew?.close());

  phase = 'callers work';
  const openedAt = now();
  const isOver = new AbortController();
  const working = crew.work(isOver.signal);
  if (options.hasFaults) schedule = new FaultSchedule(world, seed, now, options.target);
  // An error of a caller, or a part that does not recover, ends the run.
  const end = Promise.race([working, untilEnough(options, log), ...(schedule ? [schedule.begin()] : [])]);
  await end.finally(() => schedule?.stop());
  await world.untilReady();
  phase = 'callers learn the ends';
  isOver.abort();
  await working;
  const seconds = (now() - openedAt) / 1000;
  await log.close();
  const faults = schedule?.struck ?? [];
  const verdict = await judge(world, log.path, {
    deaths: faults.flatMap(({ buries, from, until }) =>
      buries.map((gateway) => ({ gateway, from: wallTime(from), until: wallTime(until) })),
    ),
    progress: (words) => {
      phase = `judging: ${words}`;
    },
  });
  return {
    ...{ verdict, faults },
    ...{ operations: log.count, requests: log.requests, seconds },
    ...{ told: log.path, world },
  };
}

async function untilEnough({ milliseconds, operations }: SoakOptions, log: ToldLog): Promise<void> {
  const enoughAt = performance.now() + milliseconds;
  while (performance.now() < enoughAt && log.count < operations) await sleep(LOOK_EVERY_MS);
}
