import { randomInt, randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Address } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { isFree } from '../../src/sandbox/free-port.ts';
import { type Child, programCommand, startCommand } from '../../test/support/child.ts';
import { testDatabase } from '../../test/support/database.ts';
import { PROJECT } from '../../test/support/project.ts';
import { startTcpProxy } from '../../test/support/tcp-proxy.ts';
import { until } from '../../test/support/until.ts';
import { accepts } from '../bench/programs.ts';
import type { Sent } from '../soak/callers/line.ts';
import type { World } from './world.ts';

const PACKAGES = { ours: '', express: '@x402/express', hono: '@x402/hono', mppx: 'mppx' };
export type TargetName = keyof typeof PACKAGES;
export const TARGETS = Object.keys(PACKAGES) as TargetName[];

/** A process under attack that sells speech by x402 at `/x402/tts`, by POST and GET. */
export interface Target {
  readonly name: TargetName;
  readonly origin: string;
  readonly payTo: Address;
  /** Another paid endpoint: it sells this text, or something else for this price in micro-USD. */
  other(text: string, price: bigint): Sent;
  /** Sends SIGKILL unless the process has exited. */
  kill(): Promise<void>;
  /** Starts on the same port with the same data. Resolves when it listens. */
  start(): Promise<void>;
  isAlive(): Promise<boolean>;
  /** Cuts only this target's connection to the chain's node, or restores it. */
  cutNode(): void;
  restoreNode(): void;
  /** The end of its output. */
  lastOutput(): string;
}

/** Peers have one fixed price: what a text of 60 characters costs at our target. */
const PRICE = '$0.00108';
const START_MS = 180_000;
const PORTS = { from: 15_000, to: 32_000 };
const OUTPUT_CHARACTERS = 2_000;

/**
 * Starts the gateway as `npm start` runs it, or another project's server, whose setup is in lab/attacks/peers/. Limits
 * by address are high because all callers share one address. It ends with the test.
 */
export async function startTarget(world: World, name: TargetName): Promise<Target> {
  const [port, node] = [await keptPort(), await startTcpProxy(world.t, world.chain.rpcUrl)];
  const { address: payTo } = privateKeyToAccount(generatePrivateKey());
  const folder = join(world.folder, randomUUID());
  const isOurs = name === 'ours';
  const settings: Record<string, string> = isOurs
    ? {
        DATABASE_URL: (await testDatabase(world.t)).url,
        DATA_DIR: folder,
        LOG_LEVEL: 'warn',
        SPEECH_BASE_URL: world.upstreamUrl,
        SPEECH_TIMEOUT_MS: '10000',
        X402_PAY_TO: payTo,
        X402_FACILITATOR_URL: world.facilitator.url,
        X402_RPC_URL: node.url,
        QUOTE_SECRET: 'a-quote-secret-of-the-attacks-of-32-bytes-or-more',
        TRUST_PROXY: '127.0.0.1',
        RATE_LIMIT_MAX: '1000000',
        EDGE_RATE_LIMIT_MAX: '1000000',
      }
    : {
        NODE_ENV: 'production',
        PAY_TO: payTo,
        PRICE,
        STORE: folder,
        FACILITATOR_URL: world.facilitator.url,
        UPSTREAM_ORIGIN: new URL(world.upstreamUrl).origin,
      };
  const peer = [process.execPath, join(PROJECT, 'lab/attacks/peers', `${name}.mjs`)];
  const command = isOurs ? programCommand('src/main.ts') : peer;
  let child: Child | undefined;
  const isRunning = () => child?.process.exitCode === null && child.process.signalCode === null;
  const start = async () => {
    child = startCommand(world.t, command, { env: { ...settings, PORT: String(port) } });
    await until(async () => {
      if (!isRunning()) throw new Error(`${name} has ended:\n${child?.output()}`);
      return accepts(port);
    }, START_MS);
  };
  await start();
  return {
    ...{ name, payTo, start, origin: `http://127.0.0.1:${port}` },
    other: (text, price) => ({
      method: 'POST',
      path: isOurs ? '/x402/deposit' : '/x402/other',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(isOurs ? { amountMicroUsd: Number(price) } : { text }),
    }),
    kill: async () => {
      if (isRunning()) await child?.stop('SIGKILL');
    },
    isAlive: async () => isRunning() && (await accepts(port)),
    cutNode: () => node.cut(),
    restoreNode: () => node.restore(),
    lastOutput: () => child?.output().slice(-OUTPUT_CHARACTERS) ?? '',
  };
}

/** Name and version. */
export async function packageOf(target: TargetName): Promise<string> {
  const folder = target === 'ours' ? '.' : join('lab/attacks/peers/node_modules', PACKAGES[target]);
  const { name, version } = JSON.parse(await readFile(join(PROJECT, folder, 'package.json'), 'utf8'));
  return `${name} ${version}`;
}

/** A port below the ephemeral range: an outgoing connection could otherwise take it during a restart. */
async function keptPort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to);
    if (await isFree(port)) return port;
  }
}
