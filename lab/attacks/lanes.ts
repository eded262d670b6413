import type { Attack } from './attack.ts';
import { type Outcome, runAttack } from './run.ts';
import { startOurs } from './targets/ours.ts';
import { startPeer } from './targets/peers.ts';
import type { Target } from './targets/target.ts';
import type { World } from './world.ts';

export const TARGETS = ['ours', 'express', 'hono', 'mppx'] as const;
export type TargetName = (typeof TARGETS)[number];

/** Lanes for attacks that mostly wait, besides the one lane for the others. */
const LANES_OF_WAITING = 3;

const start = (world: World, name: TargetName): Promise<Target> =>
  name === 'ours' ? startOurs(world) : startPeer(world, name);

const waits = ({ waits: isWaiting, atOnce }: Attack): boolean => isWaiting === true || atOnce !== undefined;

/**
 * Runs attacks against a target: one after the other in each lane, and each lane has its own server.
 * @param onOutcome called for each outcome, except where the machine was too busy for a verdict
 */
export async function runLanes(
  world: World,
  name: TargetName,
  attacks: readonly Attack[],
  tries: number,
  onOutcome: (outcome: Outcome) => void,
): Promise<void> {
  const run = async (left: Attack[]) => {
    const target = left.length > 0 ? await start(world, name) : undefined;
    for (let attack = left.shift(); target && attack; attack = left.shift()) {
      const outcome = await runAttack(world, target, attack, tries);
      if (outcome) onOutcome(outcome);
    }
    await target?.kill();
  };
  const waiting = attacks.filter(waits);
  const lanes = Array.from({ length: LANES_OF_WAITING }, () => run(waiting));
  await Promise.all([run(attacks.filter((attack) => !waits(attack))), ...lanes]);
}
