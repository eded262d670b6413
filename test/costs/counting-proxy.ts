import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import type { Test } from 'tap';
import { OF_PROCESSES } from '../support/recorded-statements.ts';
import { MessageReader } from './message-reader.ts';

/** What has gone between clients and PostgreSQL so far. */
export interface Traffic {
  readonly statements: number;
  /** Statements of upkeep, which come by the clock; the others' numbers are without them. */
  readonly upkeep: number;
  readonly bytesToDatabase: number;
  readonly bytesFromDatabase: number;
}

/** Upkeep that only reads: it is no transaction that has written, and is counted nowhere. */
const READING_UPKEEP = 'paused_flow';
/** Messages that come once a connection: what prepares a statement, and the answer to it. */
const PREPARING = new Set(['P', '1']);
const STATEMENTS = new Set(['E', 'Q']);

/** Stands between clients and PostgreSQL and counts; a connection counts from its first statement on. */
export async function startCountingProxy(t: Test, target: string): Promise<{ url: string; traffic: Traffic }> {
  const traffic = { statements: 0, upkeep: 0, bytesToDatabase: 0, bytesFromDatabase: 0 };
  const { hostname, port } = new URL(target);
  const server = createServer({ noDelay: true }, (client) => {
    const database = connect({ port: Number(port), host: hostname, noDelay: true });
    const upkeepNames = new Set<string>();
    let isReady = false;
    let isUpkeep = false;
    const fromClient = new MessageReader('client', (type, message) => {
      if (!isReady) return;
      const [first = '', second = ''] = message.toString('latin1', 5).split('\0', 2);
      if (type === 'P') {
        isUpkeep = OF_PROCESSES.test(second);
        if (isUpkeep) upkeepNames.add(first);
      }
      if (type === 'B') isUpkeep = upkeepNames.has(second);
      const isReading = type === 'Q' && first.includes(READING_UPKEEP);
      if (type === 'Q') isUpkeep = isReading || OF_PROCESSES.test(first);
      if (STATEMENTS.has(type) && !isReading) traffic[isUpkeep ? 'upkeep' : 'statements'] += 1;
      if (!isUpkeep && !PREPARING.has(type)) traffic.bytesToDatabase += message.length;
    });
    const fromDatabase = new MessageReader('server', (type, message) => {
      if (isReady && !isUpkeep && !PREPARING.has(type)) traffic.bytesFromDatabase += message.length;
      if (type === 'Z') isReady = true;
    });
    for (const [from, to, reader] of [
      [client, database, fromClient],
      [database, client, fromDatabase],
    ] as const) {
      from.on('data', (chunk) => {
        reader.push(chunk);
        to.write(chunk);
      });
      from.on('close', () => to.destroy());
      from.on('error', () => to.destroy());
    }
    t.teardown(() => database.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = new URL(target);
  url.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url: url.href, traffic };
}
