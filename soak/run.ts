import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { compileService } from '../test/compile.ts';
import type { Owner } from '../test/support/child.ts';
import { Crew } from './callers/crew.ts';
import { FaultSchedule, obstaclesOf, type Struck } from './faults/schedule.ts';
import { judge, type Verdict } from './judge/judge.ts';
import { firstOf, type SoakOptions } from './options.ts';
import { compileSabotaged, isWeakening, weaken } from './sabotage.ts';
import { ToldLog } from './told-log.ts';
import { openWorld } from './world/open-world.ts';
import type { World } from './world/world.ts';

const PROJECT = fileURLToPath(new URL('..', import.meta.url));
const LOOK_EVERY_MS = 1_000;

/** How far a run has come. */
export interface Progress {
  readonly phase: string;
  readonly seconds: number;
  readonly operations: number;
  readonly requests: number;
  /** Operations under way. */
  readonly open: number;
  readonly fault: string | undefined;
  readonly faults: number;
}

/** What a run came to. */
export interface Run {
  readonly verdict: Verdict;
  readonly faults: readonly Struck[];
  /** Why some faults were left out: this machine has not what they need. */
  readonly obstacles: readonly string[];
  readonly operations: number;
  readonly requests: number;
  /** For how long callers worked. */
  readonly seconds: number;
  /** Path of what they were told. */
  readonly told: string;
  /** As it is at the end, until its owner goes. */
  readonly world: World;
}

/** Has callers work in a world of its own while its parts break, lets everything heal, and judges it. */
export async function soak(options: SoakOptions, owner: Owner, progress: (progress: Progress) => void): Promise<Run> {
  const { seed, sabotage } = options;
  const log = new ToldLog(join(await mkdtemp(join(tmpdir(), 'speechgate-soak-told-')), 'told.jsonl'));
  let phase = 'starting the world';
  let crew: Crew | undefined;
  let schedule: FaultSchedule | undefined;
  const begunAt = performance.now();
  const wallTime = (ms: number) => performance.timeOrigin + begunAt + ms;
  const now = () => performance.now() - begunAt;
  const tell = () =>
    progress({
      ...{ phase, seconds: now() / 1000, operations: log.count, requests: log.requests, open: crew?.open ?? 0 },
      ...{ fault: schedule?.current, faults: schedule?.struck.length ?? 0 },
    });
  const telling = setInterval(tell, LOOK_EVERY_MS);
  owner.teardown(() => clearInterval(telling));

  const service = await (sabotage ? compileSabotaged(PROJECT, sabotage) : compileService(PROJECT));
  owner.teardown(service.remove);
  const world = await openWorld({ service: service.folder }, owner);
  if (sabotage) await weaken(world.databaseUrl, sabotage);
  phase = 'callers buy credit';
  const from = (caller: string) => firstOf(options.from, caller);
  crew = await Crew.open({ world, seed, sizes: options.callers, from, now, tell: log.add });
  owner.teardown(() => crew?.close());

  phase = 'callers work';
  const openedAt = now();
  const isOver = new AbortController();
  const working = crew.work(isOver.signal);
  if (options.hasFaults) schedule = new FaultSchedule(world, seed, options.faultsFrom, now);
  // A caller that throws ends the run, and so does a part that does not come back.
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
    isWeakened: sabotage !== undefined && isWeakening(sabotage),
    progress: (words) => {
      phase = `judging: ${words}`;
    },
  });
  return {
    ...{ verdict, faults, obstacles: options.hasFaults ? obstaclesOf(world) : [] },
    ...{ operations: log.count, requests: log.requests, seconds },
    ...{ told: log.path, world },
  };
}

async function untilEnough({ milliseconds, operations }: SoakOptions, log: ToldLog): Promise<void> {
  const enoughAt = performance.now() + milliseconds;
  while (performance.now() < enoughAt && log.count < operations) await sleep(LOOK_EVERY_MS);
}
