import type { Random } from '../random.ts';
import { GATEWAYS, type GatewayName, type PartName, type World } from '../world/world.ts';

export interface Fault {
  /** Such as `SIGKILL gateway one` or `facilitator: half answers`. */
  readonly name: string;
  /** The affected part, such as `gateway one`. Two faults at a time never share it. */
  readonly target: string;
  /** Relative probability. */
  readonly weight: number;
  /** Gateways that it kills or freezes: responses they delivered around that moment may stay uncharged. */
  readonly buries?: readonly GatewayName[];
  /** Causes the fault. Resolves when all parts run again. @throws when a part does not recover */
  strike(world: World, random: Random): Promise<void>;
}

export const gatewayOf = (name: PartName): readonly GatewayName[] => GATEWAYS.filter((gateway) => name === gateway);
