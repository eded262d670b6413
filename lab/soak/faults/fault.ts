import type { Random } from '../random.ts';
import { GATEWAYS, type PartName, type World } from '../world/world.ts';

export interface Fault {
  /** Such as `SIGKILL gateway one` or `facilitator: half answers`. */
  readonly name: string;
  /** The affected part, such as `gateway one`. Two faults at a time never share it. */
  readonly target: string;
  /** Relative probability. */
  readonly weight: number;
  /** Gateways that it kills or freezes, or the database that loses its last holds: answers of that moment may stay uncharged. */
  readonly buries?: readonly PartName[];
  /** Causes the fault. Resolves when all parts run again. @throws when a part does not recover */
  strike(world: World, random: Random): Promise<void>;
}

export const buriedBy = (name: PartName): readonly PartName[] =>
  [...GATEWAYS, 'postgres'].includes(name) ? [name] : [];
