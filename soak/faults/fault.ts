import type { Random } from '../random.ts';
import { GATEWAYS, type GatewayName, type PartName, type World } from '../world/world.ts';

/** Something that breaks: what is drawn for it says how long and how. */
export interface Fault {
  /** Such as `SIGKILL gateway one` or `facilitator: half answers`. */
  readonly name: string;
  /** What is broken, such as `gateway one`: never by two faults at a time. */
  readonly target: string;
  /** How much more often than the others it is drawn. */
  readonly weight: number;
  /** The gateways that die by it, or may be taken for dead. */
  readonly buries?: readonly GatewayName[];
  /** Why it can't happen on this machine; undefined where it can. */
  obstacle?(world: World): string | undefined;
  /** Lets it happen, and resolves when all is as before, all parts running. Throws where a part does not come back. */
  strike(world: World, random: Random): Promise<void>;
}

/** The gateways that are dead, or can tell nothing, while this part is away. */
export const heardThrough = (name: PartName): readonly GatewayName[] =>
  GATEWAYS.filter((gateway) => name === gateway || name === 'postgres');
