import { setTimeout as sleep } from 'node:timers/promises';
import { GATEWAYS, type PartName } from '../world/world.ts';
import { type Fault, heardThrough } from './fault.ts';

const PARTS: readonly PartName[] = [
  ...(['gateway one', 'gateway two', 'worker', 'postgres'] as const),
  ...(['chain', 'facilitator', 'checkout', 'store', 'upstream'] as const),
];
const SERVICE: readonly PartName[] = ['gateway one', 'gateway two', 'worker'];
/** Its objects are in memory. */
const FORGETFUL: readonly PartName[] = ['store'];

/** Below the lease of a hold, 31 s, within which nobody takes over. */
const SHORT_FREEZE_MS = 6_000;
/** Beyond it. */
const LONG_FREEZE_MS = [33_000, 40_000] as const;
const LONGEST_AWAY_MS = 4_000;

const weightOf = (name: PartName): number => (SERVICE.includes(name) || name === 'postgres' ? 4 : 2);

/** Each process ends without warning, and is started again. */
const kills: readonly Fault[] = PARTS.filter((name) => !FORGETFUL.includes(name)).map((name) => ({
  ...{ name: `SIGKILL ${name}`, target: name, weight: weightOf(name), buries: heardThrough(name) },
  strike: async ({ parts }, random) => {
    await parts[name].kill();
    await sleep(random.between(0, LONGEST_AWAY_MS));
    await parts[name].start();
  },
}));

/** Each process of the service is told to end, as a new version of it is brought in. */
const stops: readonly Fault[] = SERVICE.map((name) => ({
  ...{ name: `SIGTERM ${name}`, target: name, weight: 2, buries: heardThrough(name) },
  strike: async ({ parts }) => {
    await parts[name].stop();
    await parts[name].start();
  },
}));

/** Each process stands still for a while, and goes on as if nothing had happened. */
const freezes: readonly Fault[] = PARTS.map((name) => ({
  ...{ name: `SIGSTOP ${name}`, target: name, weight: weightOf(name), buries: name === 'postgres' ? GATEWAYS : [] },
  strike: async ({ parts }, random) => {
    await parts[name].freeze();
    await sleep(random.between(100, SHORT_FREEZE_MS));
    await parts[name].thaw();
  },
}));

/** A process of the service stands still until others have taken over what it was doing. */
const longFreezes: readonly Fault[] = SERVICE.map((name) => ({
  ...{ name: `SIGSTOP ${name} beyond its leases`, target: name, weight: 1, buries: heardThrough(name) },
  strike: async ({ parts }, random) => {
    await parts[name].freeze();
    await sleep(random.between(...LONG_FREEZE_MS));
    await parts[name].thaw();
  },
}));

export const SIGNALS: readonly Fault[] = [...kills, ...stops, ...freezes, ...longFreezes];
