import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { projectFile } from '../../test/support/project.ts';
import { type Books, openBooks } from './database/books.ts';
import type { FillSizes } from './growth/fill/sizes.ts';
import type { Job, Outcome } from './load/main.ts';
import type { Tuning } from './options.ts';
import type { Row } from './rows.ts';
import type { StubPorts } from './servers/main.ts';
import type { Manner } from './servers/upstream.ts';
import { compiled, type Running, startProgram } from './targets/program.ts';
import { startTarget, type Target, type TargetName } from './targets/start.ts';
import { LONG_JOB_CHARACTERS } from './world.ts';

/** /tmp may be in memory, but commits have to wait for a real disk. */
const PLACE = '/var/tmp';

/** Everything that a run needs, each part in its own process. */
export interface Setup {
  readonly books: Books;
  readonly stubs: StubPorts;
  readonly folder: string;
  /** @throws when the target was not requested at setup */
  target(name: TargetName, processes?: number): Target;
  speak(manner: Manner): Promise<void>;
  /** Sends a row's requests from another process. @throws with the target's last output when a response is wrong */
  load<Result>(row: Row, job: Job): Promise<Result>;
  /** Like `load`, from a second process that may run at the same time. */
  besides<Result>(job: Job): Promise<Result>;
  close(): Promise<void>;
}

export type Wanted = Pick<Target, 'name' | 'processes'>;

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

export interface SetupOptions {
  /** The Node.js binary of every target, stub and load. */
  readonly node: string;
  /** Of the ledger. Undefined creates only the paying accounts. */
  readonly sizes?: FillSizes | undefined;
  readonly tuning: Tuning;
}

export async function setUp(
  wanted: readonly Wanted[],
  { node, sizes, tuning }: SetupOptions,
  onProgress: (message: string) => void,
): Promise<Setup> {
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
    const program = await startProgram({ name, args: compiled(`lab/bench/${name}/main.ts`), folder, node });
    programs.push(program);
    return program;
  };

  try {
    onProgress('starting PostgreSQL, funding accounts and wallets');
    books = await openBooks(folder, { sizes, settings: tuning.postgres }, onProgress);
    onProgress('starting the targets');
    const [load, servers] = [await start('load'), await start('servers')];
    let other: Running | undefined;
    const stubs = await servers.told<StubPorts>();
    const catalog = await longCatalog(folder);
    const spawnOptions = {
      stubs,
      databaseUrl: tuning.isOverTcp ? books.url : books.nearUrl,
      folder,
      node,
      catalog,
      tuning,
    };
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
        : startTarget(name, processes, spawnOptions, (program) => {
            programs.push(program);
          }),
    );
    // If one fails, no other may start after cleanup.
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

/** The built-in catalog, whose models take long texts. */
async function longCatalog(folder: string): Promise<string> {
  const builtIn = JSON.parse(await readFile(projectFile('src/config/catalog-default.json'), 'utf8'));
  const models = builtIn.models.map((model: object) => ({ ...model, maxInputCharacters: LONG_JOB_CHARACTERS }));
  const file = join(folder, 'catalog.json');
  await writeFile(file, JSON.stringify({ ...builtIn, models }));
  return file;
}

const distinct = (wanted: readonly Wanted[]): Wanted[] =>
  wanted.filter(({ name, processes }, index) => {
    const first = wanted.findIndex((each) => each.name === name && each.processes === processes);
    return first === index;
  });
