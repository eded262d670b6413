import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../../src/sandbox/free-port.ts';
import { progress } from '../figures.ts';
import { type Books, openBooks } from './books.ts';
import type { FillSizes } from './fill-ledger.ts';
import type { Load, LoadResult, Outcome } from './load/main.ts';
import { compiled, type Running, startProgram } from './programs.ts';
import type { Row, TargetName } from './rows.ts';
import type { Manner, StubPorts } from './servers/main.ts';
import { startTarget, type Target, type Tuning } from './targets.ts';

/** /tmp may be in memory, but commits have to wait for a real disk. */
const PLACE = '/var/tmp';
const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** Everything that a run needs, each part in its own process. */
export interface Setup {
  readonly books: Books;
  /** Origin of the speech server. */
  readonly upstream: string;
  readonly folder: string;
  /** @throws when the target was not requested at setup */
  target(name: TargetName): Target;
  speak(manner: Manner): Promise<void>;
  /** Sends a row's requests from another process. @throws with the target's last output when a response is wrong */
  load(row: Row, load: Load): Promise<LoadResult>;
  close(): Promise<void>;
}

/** @param sizes of the ledger. Undefined creates only the paying accounts. */
export async function setUp(rows: readonly Row[], tuning: Tuning, sizes?: FillSizes): Promise<Setup> {
  const folder = await mkdtemp(join(PLACE, 'speechgate-bench-'));
  const programs: Running[] = [];
  let books: Books | undefined;
  let removed: Promise<void> | undefined;
  const remove = async () => {
    for (const signal of SIGNALS) process.off(signal, endBySignal);
    await Promise.all(programs.map((program) => program.stop()));
    await books?.remove();
    await rm(folder, { recursive: true, force: true });
  };
  const close = () => (removed ??= remove());
  const endBySignal = () => void close().finally(() => process.exit(1));
  for (const signal of SIGNALS) process.once(signal, endBySignal);
  const start = async (name: string) => {
    const args = [compiled(`lab/bench/${name}/main.ts`)];
    const program = await startProgram({ name, args, command: tuning.node, folder });
    programs.push(program);
    return program;
  };

  try {
    progress('starting PostgreSQL, funding accounts and wallets');
    books = await openBooks(folder, tuning.postgres, sizes);
    progress('starting the targets');
    const [load, servers] = [await start('load'), await start('servers')];
    const stubs = await servers.ask<StubPorts>();
    const names = new Set(rows.map(({ target }) => target));
    // The prebuilt response is a copy of the gateway's.
    if (names.has('prebuilt')) names.add('ours');
    names.delete('upstream');
    const place = { tuning, stubs, databaseUrl: books.url, folder, gateway: await freePort() };
    const starting = [...names].map(async (name): Promise<[TargetName, Target]> => {
      const port = name === 'ours' ? place.gateway : await freePort();
      const onStart = (program: Running) => void programs.push(program);
      return [name, await startTarget(name, { ...place, port, adminPort: await freePort() }, onStart)];
    });
    // If one fails, no other may start after cleanup.
    await Promise.allSettled(starting);
    const targets = new Map<TargetName, Target>(await Promise.all(starting));
    targets.set('upstream', { port: stubs.upstream, pid: servers.pid, program: servers });
    const target = (name: TargetName): Target => {
      const found = targets.get(name);
      if (!found) throw new Error(`${name} was not started`);
      return found;
    };
    return {
      ...{ books, folder, close, target, upstream: `http://127.0.0.1:${stubs.upstream}` },
      speak: async (manner) => {
        await servers.ask(manner);
      },
      load: async (row, job) => {
        const outcome = await load.ask<Outcome>(job);
        if ('result' in outcome) return outcome.result;
        throw new Error(`${row.label}: ${outcome.failure}\n${await target(row.target).program.lastOutput()}`);
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}
