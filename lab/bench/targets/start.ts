import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { commandLineOf } from '../../../src/sandbox/processes.ts';
import type { DutyFlow } from '../duties/duties.ts';
import { processTree } from '../processes.ts';
import type { StubPorts } from '../servers/main.ts';
import { PAY_TO, PRICE_MICRO_USD } from '../world.ts';
import { compiled, PROJECT, type Program, type Running, startProgram } from './program.ts';

/** The gateway with the duties of a flow up to this step. */
type DutyTarget = `duty-${DutyFlow}-${number}`;

export type TargetName =
  | 'upstream'
  | 'bare'
  | 'floor'
  | 'prebuilt'
  | 'portkey'
  | 'hono'
  | 'express'
  | 'ours'
  | DutyTarget;

/** The upstream always runs. */
type StartedTarget = Exclude<TargetName, 'upstream'>;

export interface Target {
  readonly name: TargetName;
  readonly processes: number;
  readonly port: number;
  readonly pid: number;
  /** The gateway's listener for operators. */
  readonly adminPort?: number;
  readonly program: Running;
}

export interface GatewayTuning {
  /** Options of Node.js, after the default ones. */
  readonly nodeOptions: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export interface Surroundings {
  readonly tuning: GatewayTuning;
  readonly stubs: StubPorts;
  readonly databaseUrl: string;
  readonly folder: string;
  readonly node: string;
  /** Of models that take long texts. */
  readonly catalog: string;
}

const GATEWAY = 'dist/main.js';
const TIMEOUT_MS = 10_000;
const POLL_MS = 50;

/**
 * Starts a target. Resolves when it listens. Only the gateway may have several processes.
 * @param onStart called before it listens
 */
export async function startTarget(
  name: StartedTarget,
  processes: number,
  spawnOptions: Surroundings,
  onStart: (program: Running) => void,
): Promise<Target> {
  const [port, adminPort] = [await freePort(), await freePort()];
  const settings = programOf(name)({ port, adminPort, processes, ...spawnOptions });
  const program = await startProgram({
    name: `${name}-${processes}`,
    folder: spawnOptions.folder,
    node: spawnOptions.node,
    ...settings,
  });
  onStart(program);
  if (name !== 'prebuilt') await program.listens(port);
  if (processes > 1) await areRunning(program.pid, processes);
  return { name, processes, port, pid: program.pid, program, ...(name === 'ours' && { adminPort }) };
}

/** @throws when too few gateway processes start: the row would then be measured with one */
async function areRunning(root: number, processes: number): Promise<void> {
  for (const deadline = performance.now() + TIMEOUT_MS; ; await sleep(POLL_MS)) {
    const found = await Promise.all(processTree(root).map((pid) => commandLineOf(pid)));
    if (found.filter((each) => each.includes(GATEWAY)).length >= processes) return;
    if (performance.now() > deadline) throw new Error(`WEB_CONCURRENCY=${processes} has not made as many processes.`);
  }
}

interface Place extends Surroundings {
  readonly port: number;
  readonly adminPort: number;
  readonly processes: number;
}

const peer = (file: string, settings: (place: Place) => Record<string, string>) => (place: Place) => ({
  args: [join(PROJECT, 'lab/bench/peers', file)],
  env: { NODE_ENV: 'production', PORT: String(place.port), ...settings(place) },
});

const upstreamOf = ({ stubs }: Place) => ({ UPSTREAM_ORIGIN: `http://127.0.0.1:${stubs.upstream}` });

const sale = (place: Place) => ({
  ...upstreamOf(place),
  FACILITATOR_URL: `http://127.0.0.1:${place.stubs.facilitator}`,
  PAY_TO,
  PRICE: `$${Number(PRICE_MICRO_USD) / 1e6}`,
});

const own = (path: string) => (place: Place) => ({
  args: compiled(path),
  env: { NODE_ENV: 'production', PORT: String(place.port), ...upstreamOf(place) },
});

type ProgramAt = (place: Place) => Pick<Program, 'args' | 'env'>;

function programOf(name: StartedTarget): ProgramAt {
  const [, FLOW, STEP] = /^duty-(\w+)-(\d+)$/.exec(name) ?? [];
  if (FLOW === undefined || STEP === undefined) return PROGRAMS[name as Exclude<StartedTarget, DutyTarget>];
  return (place) => {
    const { args, env } = PROGRAMS.ours(place);
    const DATA_DIR = join(place.folder, name);
    return {
      args: [...args.slice(0, -1), ...compiled('lab/bench/servers/duties.ts')],
      env: { ...env, ...PROGRAMS.floor(place).env, DATA_DIR, FLOW, STEP },
    };
  };
}

const PROGRAMS: Record<Exclude<StartedTarget, DutyTarget>, ProgramAt> = {
  bare: own('lab/bench/servers/bare-proxy.ts'),
  floor: (place) => ({
    args: compiled('lab/bench/servers/floor.ts'),
    env: {
      ...{ NODE_ENV: 'production', PORT: String(place.port), DATABASE_URL: place.databaseUrl, FOLDER: place.folder },
      ...upstreamOf(place),
      FACILITATOR_URL: `http://127.0.0.1:${place.stubs.facilitator}`,
    },
  }),
  prebuilt: own('lab/bench/servers/prebuilt.ts'),
  hono: peer('hono.mjs', sale),
  express: peer('express.mjs', sale),
  portkey: (place) => ({
    args: [
      ...['--import', join(PROJECT, 'lab/bench/peers/quiet.mjs')],
      join(PROJECT, 'lab/bench/peers/node_modules/@portkey-ai/gateway/build/start-server.js'),
      '--headless',
      `--port=${place.port}`,
    ],
    env: { NODE_ENV: 'production', ENVIRONMENT: 'production' },
  }),
  // As `npm start`, with every limit on. The limit by address is high, because most callers share an address.
  ours: (place) => ({
    args: ['--max-semi-space-size=32', ...place.tuning.nodeOptions, GATEWAY],
    env: {
      PORT: String(place.port),
      ADMIN_PORT: String(place.adminPort),
      DATABASE_URL: place.databaseUrl,
      DATA_DIR: join(place.folder, `data-${place.processes}`),
      CATALOG_FILE: place.catalog,
      SPEECH_BASE_URL: `http://127.0.0.1:${place.stubs.upstream}/v1`,
      STRIPE_SECRET_KEY: 'sk_test_benchmark',
      STRIPE_API_BASE: 'http://127.0.0.1:1',
      X402_PAY_TO: PAY_TO,
      X402_FACILITATOR_URL: `http://127.0.0.1:${place.stubs.facilitator}`,
      X402_RPC_URL: `http://127.0.0.1:${place.stubs.node}`,
      QUOTE_SECRET: 'a-quote-secret-of-the-benchmark-of-32-bytes-or-more',
      TRUST_PROXY: '127.0.0.1',
      RATE_LIMIT_MAX: '600',
      EDGE_RATE_LIMIT_MAX: '100000000',
      MAX_CONNECTIONS: '20000',
      ...(place.processes > 1 && { WEB_CONCURRENCY: String(place.processes) }),
      ...place.tuning.env,
    },
  }),
};
