import type { Attack } from './attack.ts';
import { type Outcome, type Pace, runAttack } from './run.ts';
import { startOurs } from './targets/ours.ts';
import { type PeerName, startPeer } from './targets/peers.ts';
import type { Target } from './targets/target.ts';
import type { World } from './world.ts';

export const TARGETS = ['ours', 'express', 'hono', 'mppx'] as const;
export type TargetName = (typeof TARGETS)[number];

/** Lanes of a target: in one its attacks run beside each other, in the others it is waited for its parts and restarts. */
const LANES_OF_WAITING = 2;

const start = (world: World, name: TargetName): Promise<Target> =>
  name === 'ours' ? startOurs(world) : startPeer(world, name as PeerName);

/**
 * Runs attacks against a target, one after the other in each lane, which has a server of its own.
 * @param onOutcome told of each as it comes
 */
export async function runLanes(
  world: World,
  name: TargetName,
  attacks: readonly Attack[],
  pace: Pace,
  onOutcome: (outcome: Outcome) => void,
): Promise<Outcome[]> {
  const waiting = attacks.filter(({ atOnce }) => atOnce !== undefined);
  const lanes = [
    attacks.filter(({ atOnce }) => atOnce === undefined),
    ...Array.from({ length: LANES_OF_WAITING }, (_, lane) =>
      waiting.filter((_attack, index) => index % LANES_OF_WAITING === lane),
    ),
  ];
  const outcomes = lanes
    .filter((lane) => lane.length > 0)
    .map(async (lane) => {
      const target = await start(world, name);
      const found: Outcome[] = [];
      for (const attack of lane) {
        const outcome = await runAttack(world, target, attack, pace);
        onOutcome(outcome);
        found.push(outcome);
      }
      await target.kill();
      return found;
    });
  return (await Promise.all(outcomes)).flat();
}
