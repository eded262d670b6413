import { setTimeout as sleep } from 'node:timers/promises';
import { within } from '../../src/lib/within.ts';
import { BREAKS } from './links.ts';
import { Random } from './random.ts';
import { OUTSIDE, type PartName, SERVICE, type World } from './world/world.ts';

interface Fault {
  /** Such as `SIGKILL gateway one` or `facilitator: half answers`. */
  readonly name: string;
  /** The affected part, such as `gateway one`. Two faults at a time never share it. */
  readonly target: string;
  /** Relative probability. */
  readonly weight: number;
  /** The gateway that it kills or freezes, or the database that loses its last holds: answers of that moment may stay uncharged. */
  readonly buries?: PartName;
  /** Causes the fault. Resolves when all parts run again. @throws when a part does not recover */
  strike(world: World, random: Random): Promise<unknown>;
}

export interface Struck extends Pick<Fault, 'name' | 'buries'> {
  /** Milliseconds since the start of the run. */
  readonly from: number;
  readonly until: number;
}

const PAUSE_MS = [200, 3_000] as const;
const TWO_AT_ONCE = 0.25;

const PARTS: readonly PartName[] = [...SERVICE, 'postgres', 'chain', 'facilitator', 'checkout', 'store', 'upstream'];
/** Shorter than a hold's lease (SPEECH_TIMEOUT_MS + 30 s), so no other process takes the hold over. */
const SHORT_FREEZE_MS = [100, 6_000] as const;
const LONG_FREEZE_MS = [77_000, 85_000] as const;
const LONGEST_AWAY_MS = 4_000;

/** A freeze buries a gateway when others take over its work meanwhile. */
const freeze =
  (name: PartName, lastsMs: readonly [number, number]): Fault['strike'] =>
  async ({ parts }, random) => {
    await parts[name].freeze();
    await sleep(random.between(...lastsMs));
    await parts[name].thaw();
  };

const ofService = (name: PartName): Fault[] => [
  {
    ...{ name: `SIGTERM ${name}`, target: name, weight: 2 },
    strike: async ({ parts }) => {
      await parts[name].stop();
      await parts[name].start();
    },
  },
  {
    ...{ name: `SIGSTOP ${name} beyond its leases`, target: name, weight: 1, buries: name },
    strike: freeze(name, LONG_FREEZE_MS),
  },
];

const SIGNALS: readonly Fault[] = PARTS.flatMap((name): Fault[] => {
  const isService = SERVICE.some((each) => each === name);
  const weight = isService || name === 'postgres' ? 4 : 2;
  const kill: Fault = {
    ...{ name: `SIGKILL ${name}`, target: name, weight, buries: name },
    strike: async ({ parts }, random) => {
      await parts[name].kill();
      await sleep(random.between(0, LONGEST_AWAY_MS));
      await parts[name].start();
    },
  };
  return [
    // It keeps its objects in memory.
    ...(name === 'store' ? [] : [kill]),
    { name: `SIGSTOP ${name}`, target: name, weight, strike: freeze(name, SHORT_FREEZE_MS) },
    ...(isService ? ofService(name) : []),
  ];
});

const LONGEST_CUT_MS = 5_000;
const ANSWER_TIMEOUT_MS = 5_000;
/** Completion tags of statements that change data, but not `BEGIN` and similar. */
const DONE = ['COMMIT', 'INSERT 0 1', 'UPDATE 1', 'DELETE 1', 'SELECT 1'];

const CONNECTIONS: readonly Fault[] = SERVICE.flatMap((name): Fault[] => {
  const target = `database of ${name}`;
  return [
    ...(['cut', 'freeze', 'mute', 'abandon'] as const).map(
      (how): Fault => ({
        ...{ name: `${how} connections of ${name}`, target, weight: 1 },
        strike: async ({ databaseLinks }, random) => {
          databaseLinks[name][how]();
          await sleep(random.between(50, LONGEST_CUT_MS));
          databaseLinks[name].restore();
        },
      }),
    ),
    {
      // A statement succeeds, but its sender does not get the response.
      ...{ name: `lost answer for ${name}`, target, weight: 4 },
      strike: async ({ databaseLinks }, random) => {
        await within(ANSWER_TIMEOUT_MS, databaseLinks[name].loseAnswer(random.pick(DONE)));
        databaseLinks[name].restore();
      },
    },
  ];
});

const POSTGRES: readonly Fault[] = (
  [
    ['restart of postgres', 'stop', {}],
    ['immediate restart of postgres', 'stopAtOnce', { buries: 'postgres' }],
    ['SIGKILL of the postmaster alone', 'killPostmaster', { buries: 'postgres' }],
  ] as const
).map(([name, end, buried]) => ({
  ...{ name, target: 'postgres', weight: 2, ...buried },
  strike: async ({ parts: { postgres } }) => {
    await postgres[end]();
    await postgres.start();
  },
}));

const LONGEST_BREAK_MS = 6_000;
/** Longer than the service's timeout for a settlement, 30 s. */
const HANGS_LONG_MS = 33_000;

/** A share of the calls to one external service fails in the same way for a while. */
const LINKS: readonly Fault[] = OUTSIDE.flatMap((link) =>
  Object.entries(BREAKS).map(([kind, begin]) => ({
    ...{ name: `${link}: ${kind}`, target: `link to ${link}`, weight: 1 },
    strike: async ({ links }, random) => {
      const share = random.pick([0.1, 0.5, 1]);
      const isLong = link === 'facilitator' && /hang/.test(kind) && random.chance(0.2);
      const over = sleep(isLong ? HANGS_LONG_MS : random.between(200, LONGEST_BREAK_MS));
      const breaker = begin(random, over);
      links[link].breaker = (exchange) => (random.chance(share) ? breaker(exchange) : exchange.relay());
      await over;
      links[link].breaker = undefined;
    },
  })),
);

/** In blocks. */
const DEEPEST_REORGANIZATION = 3;

const REORGANIZATION: Fault = {
  ...{ name: 'reorganisation', target: 'chain', weight: 4 },
  // Includes all transactions again. A payee who confirms at once (R44) would lose those that a real chain drops.
  strike: async ({ parts: { chain } }, random) => {
    for (let times = random.between(1, 3); times > 0; times--) {
      await chain.reorganize(random.between(1, DEEPEST_REORGANIZATION));
      await sleep(random.between(50, 1_500));
    }
  },
};

const FAULTS: readonly Fault[] = [...SIGNALS, ...CONNECTIONS, ...POSTGRES, ...LINKS, REORGANIZATION];
export const TARGETS: readonly string[] = [...new Set(FAULTS.map(({ target }) => target))];

/** A pause, then one or two faults of different parts. Depends only on the seed, the number and the faults. */
function turnOf(all: readonly Fault[], seed: string, number: number): { pauseMs: number; faults: Fault[] } {
  const random = new Random(seed, 'fault', number);
  const draw = (faults: readonly Fault[]) => random.weighted(faults.map((fault) => [fault.weight, fault] as const));
  const pauseMs = random.between(...PAUSE_MS);
  const first = draw(all);
  const others = all.filter(({ target }) => target !== first.target);
  return { pauseMs, faults: random.chance(TWO_AT_ONCE) && others.length > 0 ? [first, draw(others)] : [first] };
}

interface Schedule {
  readonly seed: string;
  readonly minutes: number;
  /** Whether this part breaks. */
  readonly isTarget: (target: string) => boolean;
  /** Milliseconds since the start of the run. */
  readonly now: () => number;
}

/** Breaks parts for so long, then heals the world. Rejects as soon as a part does not recover. */
export async function breakWorld(world: World, { seed, minutes, isTarget, now }: Schedule): Promise<Struck[]> {
  const faults = FAULTS.filter(({ target }) => isTarget(target));
  const struck: Struck[] = [];
  const strike = async (fault: Fault, number: number) => {
    const from = now();
    await fault.strike(world, new Random(seed, 'fault', number, fault.name)).catch((cause) => {
      throw new Error(`${fault.name} (fault ${number}) could not be mended`, { cause });
    });
    struck.push({ name: fault.name, from, until: now(), ...(fault.buries && { buries: fault.buries }) });
  };
  const end = now() + minutes * 60_000;
  if (faults.length === 0) await sleep(end - now());
  for (let number = 0; now() < end; number++) {
    const turn = turnOf(faults, seed, number);
    await sleep(Math.min(turn.pauseMs, end - now()));
    if (now() < end) await Promise.all(turn.faults.map((fault) => strike(fault, number)));
  }
  for (const link of Object.values(world.links)) link.breaker = undefined;
  for (const link of Object.values(world.databaseLinks)) link.restore();
  await Promise.all(Object.values(world.parts).map((part) => part.thaw()));
  await world.untilReady();
  return struck;
}
