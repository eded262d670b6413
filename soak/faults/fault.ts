import type { Random } from '../random.ts';
import type { World } from '../world/world.ts';

/** Something that breaks: what is drawn for it says how long and how. */
export interface Fault {
  /** Such as `SIGKILL gateway one` or `facilitator: half answers`. */
  readonly name: string;
  /** How much more often than the others it is drawn. */
  readonly weight: number;
  /** Lets it happen, and resolves when all is as before, all parts running. Never throws for what it broke itself. */
  strike(world: World, random: Random): Promise<void>;
}
