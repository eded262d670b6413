import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../../src/sandbox/free-port.ts';
import { PROJECT } from '../../test/support/project.ts';
import { compiled, type Program, type Running, startProgram } from './programs.ts';
import type { TargetName } from './rows.ts';
import type { StubPorts } from './servers/main.ts';
import { PAY_TO, PRICE_MICRO_USD } from './world.ts';

/** Targets that `lab/bench/peers` has. */
export const PEERS: readonly TargetName[] = ['portkey', 'hono', 'express'];

/** What is measured, and with which settings. */
export interface Tuning {
  /** The Node.js binary of every target, stub and load. */
  readonly node: string;
  /** Options of Node.js for the gateway, after the default ones. */
  readonly nodeOptions: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Settings by name. Only those that PostgreSQL reads again at a reload. */
  readonly postgres: Readonly<Record<string, string>>;
}

export interface Target {
  readonly port: number;
  readonly pid: number;
  /** The gateway's listener for operators. */
  readonly adminPort?: number;
  readonly program: Running;
}

export interface Place {
  readonly tuning: Tuning;
  readonly stubs: StubPorts;
  readonly databaseUrl: string;
  readonly folder: string;
  readonly port: number;
  readonly adminPort: number;
  /** Port of the gateway. */
  readonly gateway: number;
}

/** Starts a target. Resolves when it listens. @param onStart called before it listens */
export async function startTarget(
  name: TargetName,
  place: Place,
  onStart: (program: Running) => void,
): Promise<Target> {
  const { folder, tuning, port, adminPort } = place;
  const program = await startProgram({ name, folder, command: tuning.node, ...programOf(name, place) });
  onStart(program);
  await program.listens(port);
  return { port, pid: program.pid, program, ...(name === 'ours' && { adminPort }) };
}

function programOf(name: TargetName, place: Place): Pick<Program, 'args' | 'env'> {
  const { tuning, stubs, databaseUrl, folder, port, adminPort, gateway } = place;
  const [upstream, facilitator] = [stubs.upstream, stubs.facilitator].map((at) => `http://127.0.0.1:${at}`);
  const env = {
    ...{ NODE_ENV: 'production', PORT: String(port), UPSTREAM_ORIGIN: upstream, FACILITATOR_URL: facilitator },
    ...{ PAY_TO, PRICE: `$${Number(PRICE_MICRO_USD) / 1e6}`, DATABASE_URL: databaseUrl, FOLDER: folder },
    GATEWAY_ORIGIN: `http://127.0.0.1:${gateway}`,
  } as Record<string, string>;
  // As `npm start`, with every limit on. The limit by address is high, because most callers share an address.
  const settings = {
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    DATABASE_URL: databaseUrl,
    DATA_DIR: join(folder, `data-${name}`),
    SPEECH_BASE_URL: `${upstream}/v1`,
    STRIPE_SECRET_KEY: 'sk_test_benchmark',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    X402_PAY_TO: PAY_TO,
    X402_FACILITATOR_URL: facilitator as string,
    X402_RPC_URL: `http://127.0.0.1:${stubs.node}`,
    QUOTE_SECRET: 'a-quote-secret-of-the-benchmark-of-32-bytes-or-more',
    TRUST_PROXY: '127.0.0.1',
    RATE_LIMIT_MAX: '600',
    EDGE_RATE_LIMIT_MAX: '100000000',
    MAX_CONNECTIONS: '20000',
    ...tuning.env,
  };
  const options = ['--max-semi-space-size=32', ...tuning.nodeOptions];
  const [, FLOW, STEP] = /^duty-(\w+)-(\d+)$/.exec(name) ?? [];
  if (FLOW !== undefined && STEP !== undefined) {
    const duties = compiled('lab/bench/servers/duties.ts');
    return { args: [...options, duties], env: { ...settings, ...env, FLOW, STEP } };
  }
  const peers = join(PROJECT, 'lab/bench/peers');
  switch (name) {
    case 'ours':
      return { args: [...options, 'dist/main.js'], env: settings };
    case 'hono':
    case 'express':
      return { args: [join(peers, `${name}.mjs`)], env };
    case 'portkey': {
      const server = join(peers, 'node_modules/@portkey-ai/gateway/build/start-server.js');
      return {
        args: ['--import', join(peers, 'quiet.mjs'), server, '--headless', `--port=${port}`],
        env: { NODE_ENV: 'production', ENVIRONMENT: 'production' },
      };
    }
    default:
      return { args: [compiled(`lab/bench/servers/${name}.ts`)], env };
  }
}

/** Starts HAProxy in front of a gateway, with ops/haproxy.cfg. */
export async function startProxy({ port: gateway, adminPort }: Target, folder: string) {
  const port = await freePort();
  const example = await readFile(join(PROJECT, 'ops/haproxy.cfg'), 'utf8');
  const configuration = join(folder, 'haproxy.cfg');
  const settings = example
    // HAProxy would not start if it cannot open as many connections to the gateway as to clients. It needs far fewer.
    .replace('global\n', 'global\n  no strict-limits\n  maxconn 13000\n')
    .replace('/run/haproxy.sock', join(folder, 'haproxy.sock'))
    .replace('bind :8080', `bind 127.0.0.1:${port}`)
    .replaceAll(/^ *server two .*\n/gm, '')
    .replaceAll('127.0.0.1:8081 port 9081', `127.0.0.1:${gateway} port ${adminPort}`);
  await writeFile(configuration, settings);
  const program = await startProgram({ name: 'haproxy', command: 'haproxy', args: ['-f', configuration], folder });
  await program.listens(port);
  return { port, program };
}

/** Values of one of the gateway's metrics, one for each of its time series. */
export type Metrics = (name: string) => readonly number[];

export async function readMetrics(adminPort: number): Promise<Metrics> {
  const text = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
  return (name) => [...text.matchAll(new RegExp(`^${name}[ {].*?(\\S+)$`, 'gm'))].map(([, value]) => Number(value));
}

/** Node.js includes its sampling interval in the delay. */
const SAMPLED_EVERY_MS = 10;

/** 99th percentile since the metrics were last read, in milliseconds. With several processes: the slowest. */
export function eventLoopP99Ms(metrics: Metrics): number {
  const seconds = metrics('nodejs_eventloop_lag_p99_seconds');
  if (seconds.length === 0) throw new Error('the gateway tells no event-loop lag');
  return Math.max(0, Math.max(...seconds) * 1000 - SAMPLED_EVERY_MS);
}
