import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import type { Address } from 'viem';
import { isFree } from '../../../src/sandbox/free-port.ts';
import { type Child, startCommand } from '../../../test/support/child.ts';
import { until } from '../../../test/support/until.ts';
import { accepts } from '../../bench/targets/program.ts';
import type { Sent } from '../../soak/callers/line.ts';
import type { World } from '../world.ts';

/** A process under attack that sells speech by x402 at `/x402/tts`, by POST and GET. */
export interface Target {
  readonly name: string;
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

export interface Recipe {
  readonly name: string;
  readonly payTo: Address;
  readonly command: readonly string[];
  env(port: number): Readonly<Record<string, string>>;
  other(text: string, price: bigint): Sent;
  readonly node?: { cut(): void; restore(): void };
}

const START_MS = 180_000;
const PORTS = { from: 15_000, to: 32_000 };
const OUTPUT_CHARACTERS = 2_000;

/** Starts a program as a target. It ends with the test. */
export async function startTarget(world: World, recipe: Recipe): Promise<Target> {
  const { name, payTo, other, node } = recipe;
  const port = await keptPort();
  let child: Child | undefined;
  const start = async () => {
    child = startCommand(world.t, recipe.command, { env: { ...recipe.env(port) } });
    const { process: started, output } = child;
    await until(async () => {
      if (started.exitCode !== null) throw new Error(`${name} has ended:\n${output()}`);
      return accepts(port);
    }, START_MS);
  };
  await start();
  const isRunning = () => child?.process.exitCode === null && child.process.signalCode === null;
  return {
    ...{ name, payTo, other, start },
    origin: `http://127.0.0.1:${port}`,
    kill: async () => {
      if (isRunning()) await child?.stop('SIGKILL');
    },
    isAlive: async () => isRunning() && (await accepts(port)),
    cutNode: () => node?.cut(),
    restoreNode: () => node?.restore(),
    lastOutput: () => child?.output().slice(-OUTPUT_CHARACTERS) ?? '',
  };
}

export const folderOf = (world: World, name: string): string => join(world.folder, name);

/** A port below the ephemeral range: an outgoing connection could otherwise take it during a restart. */
async function keptPort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to);
    if (await isFree(port)) return port;
  }
}
