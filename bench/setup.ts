import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Books, openBooks } from './database/books.ts';
import type { Job, Outcome } from './load/main.ts';
import type { StubPorts } from './servers/main.ts';
import type { Manner } from './servers/upstream.ts';
import { installPeers } from './targets/peers.ts';
import { type Running, startProgram, typescript } from './targets/program.ts';
import { startTarget, type Target, type TargetName } from './targets/start.ts';

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
  /** Sends requests from a process of its own; throws when an answer is not as expected. */
  load<Result>(job: Job): Promise<Result>;
  close(): Promise<void>;
}

/** A target that is to be started, with so many processes. */
export type Wanted = Pick<Target, 'name' | 'processes'>;

const PEERS: readonly TargetName[] = ['portkey', 'hono', 'express'];

/** @param open opens the books, which go with the setup */
export async function setUp(
  wanted: readonly Wanted[],
  onProgress: (message: string) => void,
  open: (folder: string) => Promise<Books> = openBooks,
): Promise<Setup> {
  if (wanted.some(({ name }) => PEERS.includes(name))) await installPeers(onProgress);
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-bench-'));
  const programs: Running[] = [];
  let books: Books | undefined;
  const close = async () => {
    await Promise.all(programs.map((program) => program.stop()));
    await books?.remove();
    await rm(folder, { recursive: true, force: true });
  };
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
    const stubs = await servers.told<StubPorts>();
    const surroundings = { stubs, databaseUrl: books.url, folder };
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
    const targets: Target[] = await Promise.all(started);
    return {
      ...{ books, stubs, folder, close },
      target: (name, processes = 1) => {
        const target = targets.find((each) => each.name === name && each.processes === processes);
        if (!target) throw new Error(`${name} was not started with ${processes} processes`);
        return target;
      },
      speak: async (manner) => {
        await servers.ask(manner);
      },
      load: async (job) => {
        const outcome = await load.ask<Outcome>(job);
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
