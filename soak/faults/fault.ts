import type { Random } from '../random.ts';
import type { World } from '../world/world.ts';

/** Something that breaks: what is drawn for it says how long and how. */
export interface Fault {
  /** Such as `SIGKILL gateway one` or `facilitator: half answers`. */
  readonly name: string;
  /** What is broken, such as `gateway one`: never by two faults at a time. */
  readonly target: string;
  /** How much more often than the others it is drawn. */
  readonly weight: number;
  /** Why it can't happen on this machine; undefined where it can. */
  obstacle?(world: World): string | undefined;
  /** Lets it happen, and resolves when all is as before, all parts running. Throws where a part does not come back. */
  strike(world: World, random: Random): Promise<void>;
}
