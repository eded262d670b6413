import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../src/sandbox/free-port.ts';
import { findProcess } from '../../src/sandbox/processes.ts';
import { processTree } from '../processes.ts';
import type { StubPorts } from '../servers/main.ts';
import { PAY_TO, PRICE_MICRO_USD } from '../world.ts';
import { PROJECT, type Program, type Running, startProgram, typescript } from './program.ts';

/** What requests are sent to. */
export type TargetName = 'upstream' | 'bare' | 'prebuilt' | 'portkey' | 'hono' | 'express' | 'ours';

/** The upstream is there anyway. */
type StartedTarget = Exclude<TargetName, 'upstream'>;

export interface Target {
  readonly name: TargetName;
  /** That it has been told to have. */
  readonly processes: number;
  readonly port: number;
  readonly pid: number;
  /** The operators' listener of the gateway. */
  readonly adminPort?: number;
  readonly program: Running;
}

export interface Surroundings {
  readonly stubs: StubPorts;
  readonly databaseUrl: string;
  /** For files and output. */
  readonly folder: string;
}

const GATEWAY = 'src/main.ts';
const PATIENCE_MS = 10_000;
const POLL_MS = 50;

/**
 * Starts a target with one process, or the gateway with as many as it is told; resolves when it listens.
 * @param onStart told of the program before that
 */
export async function startTarget(
  name: StartedTarget,
  processes: number,
  surroundings: Surroundings,
  onStart: (program: Running) => void,
): Promise<Target> {
  const [port, adminPort] = [await freePort(undefined), await freePort(undefined)];
  const settings = PROGRAMS[name]({ port, adminPort, processes, ...surroundings });
  const program = await startProgram({ name: `${name}-${processes}`, folder: surroundings.folder, ...settings });
  onStart(program);
  if (name !== 'prebuilt') await program.listens(port);
  if (processes > 1) await areRunning(program.pid, processes);
  return { name, processes, port, pid: program.pid, program, ...(name === 'ours' && { adminPort }) };
}

/** Throws when there are not so many processes of the gateway in time: else one would be measured for several. */
async function areRunning(root: number, processes: number): Promise<void> {
  for (const deadline = performance.now() + PATIENCE_MS; ; await sleep(POLL_MS)) {
    const found = await Promise.all(processTree(root).map((pid) => findProcess(pid)));
    if (found.filter((each) => each?.commandLine.includes(GATEWAY)).length >= processes) return;
    if (performance.now() > deadline) throw new Error(`WEB_CONCURRENCY=${processes} has not made as many processes.`);
  }
}

interface Place extends Surroundings {
  readonly port: number;
  readonly adminPort: number;
  readonly processes: number;
}

const peer = (file: string, settings: (place: Place) => Record<string, string>) => (place: Place) => ({
  args: [join(PROJECT, 'bench/peers', file)],
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
  args: typescript(path),
  env: { NODE_ENV: 'production', PORT: String(place.port), ...upstreamOf(place) },
});

const PROGRAMS: Record<StartedTarget, (place: Place) => Pick<Program, 'args' | 'env'>> = {
  bare: own('bench/servers/bare-proxy.ts'),
  prebuilt: own('bench/servers/prebuilt.ts'),
  hono: peer('hono.mjs', sale),
  express: peer('express.mjs', sale),
  portkey: (place) => ({
    args: [
      ...['--import', join(PROJECT, 'bench/peers/quiet.mjs')],
      join(PROJECT, 'bench/peers/node_modules/@portkey-ai/gateway/build/start-server.js'),
      '--headless',
      `--port=${place.port}`,
    ],
    env: { NODE_ENV: 'production', ENVIRONMENT: 'production' },
  }),
  // As `npm start` does. Every limit is on; that of the edge is high, since most callers have the same address here.
  ours: (place) => ({
    args: ['--max-semi-space-size=32', '--import', 'tsx', GATEWAY],
    env: {
      PORT: String(place.port),
      ADMIN_PORT: String(place.adminPort),
      DATABASE_URL: place.databaseUrl,
      DATA_DIR: join(place.folder, `data-${place.processes}`),
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
    },
  }),
};
