import { setTimeout as sleep } from 'node:timers/promises';
import { Random } from '../random.ts';
import type { PartName, World } from '../world/world.ts';
import { CHAIN } from './chain.ts';
import { DATABASE } from './database.ts';
import type { Fault } from './fault.ts';
import { LINKS } from './links.ts';
import { SIGNALS } from './signals.ts';

const PAUSE_MS = [200, 3_000] as const;
const TWO_AT_ONCE = 0.25;

export interface Struck {
  readonly name: string;
  /** Milliseconds since the start of the run. */
  readonly from: number;
  readonly until: number;
  readonly buries: readonly PartName[];
}

/** A pause, then one or two faults of different parts. */
export interface Turn {
  readonly pauseMs: number;
  readonly faults: readonly Fault[];
}

/** Depends only on the seed, the number and the faults. */
function turnOf(all: readonly Fault[], seed: string, number: number): Turn {
  const random = new Random(seed, 'fault', number);
  const pauseMs = random.between(...PAUSE_MS);
  const first = random.weighted(all.map((fault) => [fault.weight, fault] as const));
  const others = all.filter(({ target }) => target !== first.target);
  if (!random.chance(TWO_AT_ONCE) || others.length === 0) return { pauseMs, faults: [first] };
  return { pauseMs, faults: [first, random.weighted(others.map((fault) => [fault.weight, fault] as const))] };
}

const FAULTS: readonly Fault[] = [...SIGNALS, ...DATABASE, ...LINKS, ...CHAIN];
export const TARGETS: readonly string[] = [...new Set(FAULTS.map(({ target }) => target))];

export class FaultSchedule {
  /** In the order of their ends. */
  readonly struck: Struck[] = [];
  readonly #world: World;
  readonly #faults: readonly Fault[];
  readonly #seed: string;
  readonly #now: () => number;
  readonly #stop = new AbortController();
  #number = 0;
  #running: Promise<void> = Promise.resolve();

  /** @param target the only part that breaks, if given */
  constructor(world: World, seed: string, now: () => number, target?: string) {
    this.#world = world;
    this.#faults = FAULTS.filter((fault) => target === undefined || fault.target === target);
    this.#seed = seed;
    this.#now = now;
  }

  /** Resolves after `stop`. Rejects as soon as a part does not recover. */
  begin(): Promise<void> {
    this.#running = this.#run();
    return this.#running;
  }

  /** Finishes the current turn and heals the world. @throws when a part did not recover */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await heal(this.#world);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const number = this.#number++;
      const { pauseMs, faults } = turnOf(this.#faults, this.#seed, number);
      await sleep(pauseMs, undefined, { signal }).catch(() => {});
      if (!signal.aborted) await Promise.all(faults.map((fault) => this.#strike(fault, number)));
    }
  }

  async #strike(fault: Fault, number: number): Promise<void> {
    const from = this.#now();
    try {
      await fault.strike(this.#world, new Random(this.#seed, 'fault', number, fault.name));
    } catch (error) {
      throw new Error(`${fault.name} (fault ${number}) could not be mended`, { cause: error });
    } finally {
      const { name, buries = [] } = fault;
      this.struck.push({ name, from, until: this.#now(), buries });
    }
  }
}

/** Removes all faults and waits until the service is ready. */
async function heal(world: World): Promise<void> {
  for (const link of Object.values(world.links)) link.breaker = undefined;
  for (const link of Object.values(world.databaseLinks)) link.restore();
  await Promise.all(Object.values(world.parts).map((part) => part.thaw()));
  await world.untilReady();
}
