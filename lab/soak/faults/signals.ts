import { setTimeout as sleep } from 'node:timers/promises';
import type { PartName } from '../world/world.ts';
import { buriedBy, type Fault } from './fault.ts';

const PARTS: readonly PartName[] = [
  ...(['gateway one', 'gateway two', 'worker', 'postgres'] as const),
  ...(['chain', 'facilitator', 'checkout', 'store', 'upstream'] as const),
];
const SERVICE: readonly PartName[] = ['gateway one', 'gateway two', 'worker'];
/** Keeps its objects in memory, so it must not be killed. */
const FORGETFUL: readonly PartName[] = ['store'];

/** Shorter than a hold's lease (SPEECH_TIMEOUT_MS + 30 s), so no other process takes the hold over. */
const SHORT_FREEZE_MS = 6_000;
const LONG_FREEZE_MS = [77_000, 85_000] as const;
const LONGEST_AWAY_MS = 4_000;

const weightOf = (name: PartName): number => (SERVICE.includes(name) || name === 'postgres' ? 4 : 2);

const kills: readonly Fault[] = PARTS.filter((name) => !FORGETFUL.includes(name)).map((name) => ({
  ...{ name: `SIGKILL ${name}`, target: name, weight: weightOf(name), buries: buriedBy(name) },
  strike: async ({ parts }, random) => {
    await parts[name].kill();
    await sleep(random.between(0, LONGEST_AWAY_MS));
    await parts[name].start();
  },
}));

/** Stops a process of the service, as during an upgrade. */
const stops: readonly Fault[] = SERVICE.map((name) => ({
  ...{ name: `SIGTERM ${name}`, target: name, weight: 2 },
  strike: async ({ parts }) => {
    await parts[name].stop();
    await parts[name].start();
  },
}));

const freezes: readonly Fault[] = PARTS.map((name) => ({
  ...{ name: `SIGSTOP ${name}`, target: name, weight: weightOf(name) },
  strike: async ({ parts }, random) => {
    await parts[name].freeze();
    await sleep(random.between(100, SHORT_FREEZE_MS));
    await parts[name].thaw();
  },
}));

/** Freezes a process of the service until others have taken over its work. */
const longFreezes: readonly Fault[] = SERVICE.map((name) => ({
  ...{ name: `SIGSTOP ${name} beyond its leases`, target: name, weight: 1, buries: buriedBy(name) },
  strike: async ({ parts }, random) => {
    await parts[name].freeze();
    await sleep(random.between(...LONG_FREEZE_MS));
    await parts[name].thaw();
  },
}));

export const SIGNALS: readonly Fault[] = [...kills, ...stops, ...freezes, ...longFreezes];
