import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PROJECT } from '../../test/support/project.ts';

/** On a machine that is busy. */
const TIMEOUT_MS = 240_000;
const POLL_MS = 20;

export interface Program {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** The complete environment, except PATH and HOME. */
  readonly env?: Readonly<Record<string, string>>;
  /** Folder of the output file, which has the program's name: a pipe would cost CPU. */
  readonly folder: string;
}

export interface Running {
  readonly pid: number;
  /** Sends a message, if there is one, and waits for the next one. @throws when the process exits first */
  ask<Answer>(message?: object): Promise<Answer>;
  /** The end of its output. */
  lastOutput(): Promise<string>;
  /** Resolves when it accepts connections. */
  listens(port: number): Promise<void>;
  /** SIGTERM, then SIGKILL after a timeout. */
  stop(): Promise<void>;
}

/** The compiled form of a program of `lab/`. */
export const compiled = (path: string): string => join(PROJECT, 'build', path.replace(/ts$/, 'js'));

export async function startProgram({ name, command, args, env = {}, folder }: Program): Promise<Running> {
  const logFile = join(folder, `${name}.log`);
  const log = await open(logFile, 'w');
  const child = spawn(command, args, {
    cwd: PROJECT,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
    stdio: ['ignore', log.fd, log.fd, 'ipc'],
  });
  const ended = once(child, 'exit');
  await log.close();
  const isRunning = () => child.exitCode === null && child.signalCode === null;
  const lastOutput = async () => (await readFile(logFile, 'utf8')).slice(-2000);
  const fail = async (what: string) => {
    throw new Error(`${name} ${what}:\n${await lastOutput()}`);
  };
  return {
    ...{ pid: child.pid as number, lastOutput },
    ask: async (message) => {
      if (message) child.send(message);
      const [answer] = await Promise.race([once(child, 'message'), ended.then(() => fail('has ended'))]);
      return answer;
    },
    listens: async (port) => {
      for (const deadline = performance.now() + TIMEOUT_MS; !(await accepts(port)); await sleep(POLL_MS)) {
        if (!isRunning()) await fail('has ended');
        if (performance.now() > deadline) await fail('does not listen');
      }
    },
    stop: async () => {
      if (!isRunning()) return;
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), TIMEOUT_MS);
      await ended;
      clearTimeout(timer);
    },
  };
}

/** Whether somebody listens at the port. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
