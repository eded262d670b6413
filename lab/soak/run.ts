import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Owner } from '../../test/support/child.ts';
import { Crew } from './callers/crew.ts';
import type { Observe } from './callers/line.ts';
import type { Struck } from './faults.ts';
import { judge, KINDS, type Verdict } from './judge.ts';
import { ToldLog } from './told.ts';
import type { Service } from './world/world.ts';

const EXIT_UNABLE = 2;
const TELL_EVERY_MS = 15_000;
const MOST_SHOWN = 30;
/** A fault that ended this long before an operation began may still affect it. */
const BEFORE_MS = 5_000;

interface Run {
  readonly verdict: Verdict;
  readonly faults: readonly Struck[];
  readonly operations: number;
  readonly requests: number;
  readonly seconds: number;
  /** Path of the callers' records. */
  readonly told: string;
}

interface RunOptions {
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
    buries ? [{ part: buries, from: wallTime(from), until: wallTime(until) }] : [],
  );
  const verdict = await judge(world, log.path, deaths, (words) => {
    phase = `judging: ${words}`;
  });
  clearInterval(telling);
  return { verdict, faults, operations: log.count, requests: log.requests, seconds, told: log.path };
}

/** Prints what happened, and each contradiction with its operation and the faults during it. @returns the exit code */
export function report({ verdict, faults, operations, requests, seconds, told }: Run): 0 | 1 {
  const { contradictions, booked, ends, spared } = verdict;
  console.log(`${operations} operations, ${requests} requests in ${inSeconds(seconds * 1000)}`);
  const table: Record<string, Record<string, number>> = {};
  for (const { flow, ended, count } of ends) table[flow] = { ...table[flow], [ended]: count };
  console.table(table);
  const struck: Record<string, { struck: number }> = {};
  for (const { name } of faults) struck[name] = { struck: (struck[name]?.struck ?? 0) + 1 };
  console.table(struck);
  console.table(Object.fromEntries(booked.map(({ kind, count, sum }) => [kind, { count, 'micro-USD': sum }])));
  const countOf = (kind: string) => contradictions.filter((each) => each.kind === kind).length;
  console.table(Object.fromEntries(KINDS.map((kind) => [kind, countOf(kind)])));
  console.log(
    `${spared.count} answers came, and are not charged since their process was killed or frozen ` +
      `(at most ${spared.farthestSeconds.toFixed(1)} s apart)`,
  );
  console.log(`what callers were told: ${told}`);
  for (const { kind, words, detail, operation } of contradictions.slice(0, MOST_SHOWN)) {
    console.log(`${kind.toUpperCase()}: ${[words, detail].filter(Boolean).join('; ')}`);
    if (!operation) continue;
    const { caller, number, flow, ended, begun_at, ended_at, keys } = operation;
    const time = `${inSeconds(begun_at)} to ${inSeconds(ended_at)}`;
    console.log(`  ${caller} #${number} (${flow}, ${ended}), ${time}, ${JSON.stringify(keys)}`);
    const meanwhile = faults.filter(({ from, until }) => from < ended_at && until > begun_at - BEFORE_MS);
    for (const { name, from, until } of meanwhile)
      console.log(`  meanwhile ${name}, ${inSeconds(from)} to ${inSeconds(until)}`);
  }
  if (contradictions.length > MOST_SHOWN) console.log(`and ${contradictions.length - MOST_SHOWN} more`);
  return contradictions.length === 0 ? 0 : 1;
}

const inSeconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

/** Runs a program, ends what it has started, also on a signal, and exits with its code; 2 when it could not run. */
export async function runProgram(main: (owner: Owner) => Promise<number>): Promise<never> {
  const teardowns: (() => unknown)[] = [];
  const owner: Owner = { teardown: (action) => void teardowns.push(action) };
  const unable = (error: unknown): number => {
    console.error(error);
    return EXIT_UNABLE;
  };
  const interrupted = new Promise<number>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => resolve(EXIT_UNABLE));
  });
  let exitCode = await Promise.race([main(owner).catch(unable), interrupted]);
  // The last ones first, and all of them.
  for (let action = teardowns.pop(); action; action = teardowns.pop()) {
    try {
      await action();
    } catch (error) {
      exitCode = unable(error);
    }
  }
  process.exit(exitCode);
}
