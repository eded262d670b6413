import { setTimeout as sleep } from 'node:timers/promises';
import { Random } from '../random.ts';
import type { GatewayName, World } from '../world/world.ts';
import type { Fault } from './fault.ts';
import { FAULTS } from './faults.ts';

const PAUSE_MS = [200, 3_000] as const;
const TWO_AT_ONCE = 0.25;

/** A fault that has been. */
export interface Struck {
  readonly name: string;
  /** Its turn: from it and the seed alone follows what broke, and for how long. */
  readonly number: number;
  /** Milliseconds, by the clock of the run. */
  readonly from: number;
  readonly until: number;
  readonly buries: readonly GatewayName[];
}

/** What breaks in a turn: one or two faults of different parts, after a pause. */
export interface Turn {
  readonly pauseMs: number;
  readonly faults: readonly Fault[];
}

/** The turn of this number, drawn from the seed and the number alone. */
export function turnOf(seed: string, number: number, faults = FAULTS): Turn {
  const random = new Random(seed, 'fault', number);
  const pauseMs = random.between(...PAUSE_MS);
  const first = random.weighted(faults.map((fault) => [fault.weight, fault] as const));
  if (!random.chance(TWO_AT_ONCE)) return { pauseMs, faults: [first] };
  const others = faults.filter(({ target }) => target !== first.target);
  return { pauseMs, faults: [first, random.weighted(others.map((fault) => [fault.weight, fault] as const))] };
}

/** Why some faults can't happen on this machine, each reason once. */
export const obstaclesOf = (world: World): readonly string[] => [
  ...new Set(FAULTS.flatMap((fault) => fault.obstacle?.(world) ?? [])),
];

/** Lets the world break turn by turn. */
export class FaultSchedule {
  /** In the order in which they were over. */
  readonly struck: Struck[] = [];
  readonly #world: World;
  readonly #seed: string;
  readonly #now: () => number;
  readonly #current = new Set<string>();
  readonly #stop = new AbortController();
  #number: number;
  #running: Promise<void> = Promise.resolve();

  /**
   * @param from number of the first turn
   * @param now milliseconds of the run
   */
  constructor(world: World, seed: string, from: number, now: () => number) {
    this.#world = world;
    this.#seed = seed;
    this.#number = from;
    this.#now = now;
  }

  /** What is breaking now; undefined in a pause. */
  get current(): string | undefined {
    return this.#current.size > 0 ? [...this.#current].join(' and ') : undefined;
  }

  /** Resolves once it is stopped, and throws as soon as something can't be mended. */
  begin(): Promise<void> {
    this.#running = this.#run();
    return this.#running;
  }

  /** Ends after the present turn, heals the world, and throws where a part has not come back. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await heal(this.#world);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const number = this.#number++;
      const { pauseMs, faults } = turnOf(this.#seed, number);
      await sleep(pauseMs, undefined, { signal }).catch(() => {});
      if (!signal.aborted) await Promise.all(faults.map((fault) => this.#strike(fault, number)));
    }
  }

  async #strike(fault: Fault, number: number): Promise<void> {
    if (fault.obstacle?.(this.#world) !== undefined) return;
    const from = this.#now();
    this.#current.add(fault.name);
    try {
      await fault.strike(this.#world, new Random(this.#seed, 'fault', number, fault.name));
    } catch (error) {
      throw new Error(`${fault.name} (fault ${number}) could not be mended`, { cause: error });
    } finally {
      this.#current.delete(fault.name);
      const { name, buries = [] } = fault;
      this.struck.push({ name, number, from, until: this.#now(), buries });
    }
  }
}

/** Mends whatever is broken, and waits until the service is ready. */
export async function heal(world: World): Promise<void> {
  for (const link of Object.values(world.links)) link.breaker = undefined;
  for (const link of Object.values(world.databaseLinks)) link.restore();
  if (typeof world.disk !== 'string') await world.disk.free();
  if (typeof world.clock !== 'string') await world.clock.step(0);
  await Promise.all(Object.values(world.parts).map((part) => part.thaw()));
  await world.untilReady();
}
