import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Books, openBooks } from './database/books.ts';
import type { Job, Outcome } from './load/main.ts';
import type { Row } from './rows.ts';
import type { StubPorts } from './servers/main.ts';
import type { Manner } from './servers/upstream.ts';
import { installPeers } from './targets/peers.ts';
import { type Running, startProgram, typescript } from './targets/program.ts';
import { startTarget, type Target, type TargetName } from './targets/start.ts';

/** Kept on a disk where /tmp may be memory: a commit waits for the database's files. */
const PLACE = '/var/tmp';

/** Everything that a run needs, each part in processes of its own. */
export interface Setup {
  readonly books: Books;
  readonly stubs: StubPorts;
  /** Goes with the setup. */
  readonly folder: string;
  /** A target that runs; throws when it was not asked for. */
  target(name: TargetName, processes?: number): Target;
  /** Has the upstream speak so from now on. */
  speak(manner: Manner): Promise<void>;
  /**
   * Sends a row's requests from a process of its own. Throws when an answer is not as expected, with what the target has
   * logged last.
   */
  load<Result>(row: Row, job: Job): Promise<Result>;
  /** Likewise, from another process than `load`, which may send at the same time. */
  besides<Result>(job: Job): Promise<Result>;
  close(): Promise<void>;
}

/** A target that is to be started, with so many processes. */
export type Wanted = Pick<Target, 'name' | 'processes'>;

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
const PEERS: readonly TargetName[] = ['portkey', 'hono', 'express'];

/** @param open opens the books, which go with the setup */
export async function setUp(
  wanted: readonly Wanted[],
  onProgress: (message: string) => void,
  open: (folder: string) => Promise<Books> = openBooks,
): Promise<Setup> {
  if (wanted.some(({ name }) => PEERS.includes(name))) await installPeers('bench/peers', onProgress);
  const folder = await mkdtemp(join(PLACE, 'speechgate-bench-'));
  const programs: Running[] = [];
  let books: Books | undefined;
  const remove = async () => {
    for (const signal of SIGNALS) process.off(signal, endBySignal);
    await Promise.all(programs.map((program) => program.stop()));
    await books?.remove();
    await rm(folder, { recursive: true, force: true });
  };
  let removed: Promise<void> | undefined;
  const close = () => {
    removed ??= remove();
    return removed;
  };
  const endBySignal = () => void close().finally(() => process.exit(1));
  for (const signal of SIGNALS) process.once(signal, endBySignal);
  const start = async (name: string) => {
    const program = await startProgram({ name, args: typescript(`bench/${name}/main.ts`), folder });
    programs.push(program);
    return program;
  };

  try {
    onProgress('starting PostgreSQL, funding accounts and wallets');
    books = await open(folder);
    onProgress('starting the targets');
    const [load, servers] = [await start('load'), await start('servers')];
    let other: Running | undefined;
    const stubs = await servers.told<StubPorts>();
    const surroundings = { stubs, databaseUrl: books.nearUrl, folder };
    const upstream = {
      name: 'upstream',
      processes: 1,
      port: stubs.upstream,
      pid: servers.pid,
      program: servers,
    } as const;
    const started = distinct(wanted).map(({ name, processes }) =>
      name === 'upstream'
        ? upstream
        : startTarget(name, processes, surroundings, (program) => {
            programs.push(program);
          }),
    );
    // Should one fail, none of the others may start after everything was stopped.
    await Promise.allSettled(started);
    const targets: Target[] = await Promise.all(started);
    const targetOf = (name: TargetName, processes = 1): Target => {
      const target = targets.find((each) => each.name === name && each.processes === processes);
      if (!target) throw new Error(`${name} was not started with ${processes} processes`);
      return target;
    };
    return {
      ...{ books, stubs, folder, close, target: targetOf },
      speak: async (manner) => {
        await servers.ask(manner);
      },
      load: async (row, job) => {
        const outcome = await load.ask<Outcome>(job);
        if ('result' in outcome) return outcome.result as never;
        const { program } = targetOf(row.target, row.processes);
        throw new Error(`${row.label}: ${outcome.failure}\n${await program.lastOutput()}`);
      },
      besides: async (job) => {
        other ??= await start('load');
        const outcome = await other.ask<Outcome>(job);
        if ('failure' in outcome) throw new Error(outcome.failure);
        return outcome.result as never;
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

const distinct = (wanted: readonly Wanted[]): Wanted[] =>
  wanted.filter(({ name, processes }, index) => {
    const first = wanted.findIndex((each) => each.name === name && each.processes === processes);
    return first === index;
  });
