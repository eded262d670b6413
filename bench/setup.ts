import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Books, openBooks } from './database/books.ts';
import type { Job, Outcome } from './load/main.ts';
import type { StubPorts } from './servers/main.ts';
import type { Manner } from './servers/upstream.ts';
import { installPeers } from './targets/peers.ts';
import { type Running, startProgram, typescript } from './targets/program.ts';
import { type StartedTarget, startTarget, type Target, type TargetName } from './targets/start.ts';

/** Everything that a run needs, each part in processes of its own. */
export interface Setup {
  readonly books: Books;
  readonly stubs: StubPorts;
  /** A target that runs; throws when it was not asked for. */
  target(name: TargetName, processes?: number): Target;
  /** Has the upstream speak so from now on. */
  speak(manner: Manner): Promise<void>;
  /** Sends requests from a process of its own; throws when an answer is not as expected. */
  load<Result>(job: Job): Promise<Result>;
  close(): Promise<void>;
}

export interface Wanted {
  readonly targets: ReadonlySet<TargetName>;
  /** How many processes the gateway has; it is started once for each. */
  readonly processes: readonly number[];
}

const PEERS: readonly TargetName[] = ['portkey', 'hono', 'express'];

export async function setUp(wanted: Wanted, onProgress: (message: string) => void): Promise<Setup> {
  if (PEERS.some((peer) => wanted.targets.has(peer))) await installPeers(onProgress);
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
    books = await openBooks(folder);
    onProgress('starting the targets');
    const [load, servers] = [await start('load'), await start('servers')];
    const stubs = await servers.told<StubPorts>();
    const surroundings = { stubs, databaseUrl: books.url, folder };
    const targets = await Promise.all(
      instances(wanted).map(async ([name, processes]) => {
        const target = await startTarget(name, surroundings, processes, (program) => programs.push(program));
        return [keyOf(name, processes), target] as const;
      }),
    );
    const running = new Map<string, Target>(targets);
    return {
      ...{ books, stubs, close },
      target: (name, processes = 1) => {
        const target = running.get(keyOf(name, processes));
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

const keyOf = (name: TargetName, processes: number): string => `${name}-${processes}`;

function instances({ targets, processes }: Wanted): (readonly [StartedTarget, number])[] {
  const names = [...targets].filter((name) => name !== 'upstream');
  return names.flatMap((name) => (name === 'ours' ? processes : [1]).map((count) => [name, count] as const));
}
