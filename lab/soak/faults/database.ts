import { setTimeout as sleep } from 'node:timers/promises';
import { within } from '../../../src/lib/within.ts';
import type { TcpProxy } from '../../../test/support/tcp-proxy.ts';
import type { Random } from '../random.ts';
import type { ServiceName } from '../world/world.ts';
import type { Fault } from './fault.ts';

const SERVICE: readonly ServiceName[] = ['gateway one', 'gateway two', 'worker'];
const LONGEST_MS = 5_000;
const ANSWER_PATIENCE_MS = 5_000;
/** Completion tags of statements that change data, but not `BEGIN` and similar. */
const DONE = ['COMMIT', 'INSERT 0 1', 'UPDATE 1', 'DELETE 1', 'SELECT 1'];

const connections: readonly (readonly [name: string, begin: (link: TcpProxy) => void])[] = [
  ['cut', (link) => link.cut()],
  ['frozen', (link) => link.freeze()],
  ['muted', (link) => link.mute()],
  ['abandoned', (link) => link.abandon()],
];

const broken: readonly Fault[] = SERVICE.flatMap((name) =>
  connections.map(([how, begin]) => ({
    ...{
      name: `${how} connections of ${name}`,
      target: `database of ${name}`,
      weight: 1,
    },
    strike: async ({ databaseLinks }, random: Random) => {
      begin(databaseLinks[name]);
      await sleep(random.between(50, LONGEST_MS));
      databaseLinks[name].restore();
    },
  })),
);

/** A statement succeeds, but its sender does not get the response. */
const lostAnswers: readonly Fault[] = SERVICE.map((name) => ({
  ...{ name: `lost answer for ${name}`, target: `database of ${name}`, weight: 4 },
  strike: async ({ databaseLinks }, random) => {
    await within(ANSWER_PATIENCE_MS, databaseLinks[name].loseAnswer(random.pick(DONE)));
    databaseLinks[name].restore();
  },
}));

const restarts: readonly Fault[] = [
  {
    ...{ name: 'restart of postgres', target: 'postgres', weight: 2 },
    strike: async ({ parts: { postgres } }) => {
      await postgres.stop();
      await postgres.start();
    },
  },
  {
    ...{ name: 'immediate restart of postgres', target: 'postgres', weight: 2, buries: ['postgres'] },
    strike: async ({ parts: { postgres } }) => {
      await postgres.stopAtOnce();
      await postgres.start();
    },
  },
  {
    ...{ name: 'SIGKILL of the postmaster alone', target: 'postgres', weight: 2, buries: ['postgres'] },
    strike: async ({ parts: { postgres } }) => {
      await postgres.killPostmaster();
      await postgres.start();
    },
  },
];

export const DATABASE: readonly Fault[] = [...broken, ...lostAnswers, ...restarts];
