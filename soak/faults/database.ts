import { setTimeout as sleep } from 'node:timers/promises';
import { within } from '../../src/lib/within.ts';
import type { TcpProxy } from '../../test/support/tcp-proxy.ts';
import type { Random } from '../random.ts';
import { GATEWAYS, type ServiceName } from '../world/world.ts';
import { type Fault, heardThrough } from './fault.ts';

const SERVICE: readonly ServiceName[] = ['gateway one', 'gateway two', 'worker'];
const LONGEST_MS = 5_000;
/** How long an answer of the wanted kind is waited for. */
const ANSWER_PATIENCE_MS = 5_000;
/** What PostgreSQL says when statements are done that change something; `BEGIN` and the like are in between. */
const DONE = ['COMMIT', 'INSERT 0 1', 'UPDATE 1', 'DELETE 1', 'SELECT 1'];

const connections: readonly (readonly [name: string, begin: (link: TcpProxy) => void])[] = [
  ['cut', (link) => link.cut()],
  ['frozen', (link) => link.freeze()],
  ['muted', (link) => link.mute()],
  ['abandoned', (link) => link.abandon()],
];

/** What becomes of the connections of one process to the database. */
const broken: readonly Fault[] = SERVICE.flatMap((name) =>
  connections.map(([how, begin]) => ({
    ...{
      name: `${how} connections of ${name}`,
      target: `database of ${name}`,
      weight: 1,
      buries: heardThrough(name),
    },
    strike: async ({ databaseLinks }, random: Random) => {
      begin(databaseLinks[name]);
      await sleep(random.between(50, LONGEST_MS));
      databaseLinks[name].restore();
    },
  })),
);

/** A statement is done, and who sent it does not learn that. */
const lostAnswers: readonly Fault[] = SERVICE.map((name) => ({
  ...{ name: `lost answer for ${name}`, target: `database of ${name}`, weight: 4, buries: heardThrough(name) },
  strike: async ({ databaseLinks }, random) => {
    await within(ANSWER_PATIENCE_MS, databaseLinks[name].loseAnswer(random.pick(DONE)));
    databaseLinks[name].restore();
  },
}));

const restarts: readonly Fault[] = [
  {
    ...{ name: 'restart of postgres', target: 'postgres', weight: 2, buries: GATEWAYS },
    strike: async ({ parts: { postgres } }) => {
      await postgres.stop();
      await postgres.start();
    },
  },
  {
    ...{ name: 'immediate restart of postgres', target: 'postgres', weight: 2, buries: GATEWAYS },
    strike: async ({ parts: { postgres } }) => {
      await postgres.stopAtOnce();
      await postgres.start();
    },
  },
  {
    ...{ name: 'SIGKILL of the postmaster alone', target: 'postgres', weight: 2, buries: GATEWAYS },
    strike: async ({ parts: { postgres } }) => {
      await postgres.killPostmaster();
      await postgres.start();
    },
  },
];

/** PostgreSQL can write nothing more; where it gives up for that, it is started when there is room. */
const full: Fault = {
  ...{ name: 'full disk of postgres', target: 'postgres', weight: 1.5, buries: GATEWAYS },
  obstacle: ({ disk }) => (typeof disk === 'string' ? disk : undefined),
  strike: async ({ disk, parts: { postgres } }, random) => {
    if (typeof disk === 'string') return;
    await disk.fill();
    await sleep(random.between(500, LONGEST_MS));
    await disk.free();
    await postgres.start();
  },
};

export const DATABASE: readonly Fault[] = [...broken, ...lostAnswers, ...restarts, full];
