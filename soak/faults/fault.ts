import type { Random } from '../random.ts';
import type { PartName, World } from '../world/world.ts';

/** Something that breaks: what is drawn for it says how long and how. */
export interface Fault {
  /** Such as `SIGKILL gateway one` or `facilitator: half answers`. */
  readonly name: string;
  /** What is broken, such as `gateway one`: never by two faults at a time. */
  readonly target: string;
  /** How much more often than the others it is drawn. */
  readonly weight: number;
  /** Whether a gateway dies by it, or may be taken for dead. */
  readonly buries?: boolean;
  /** Why it can't happen on this machine; undefined where it can. */
  obstacle?(world: World): string | undefined;
  /** Lets it happen, and resolves when all is as before, all parts running. Throws where a part does not come back. */
  strike(world: World, random: Random): Promise<void>;
}

/** Whether a gateway is dead or can tell nothing while this part is away. */
export const isHeardThrough = (name: PartName): boolean => name.startsWith('gateway') || name === 'postgres';
