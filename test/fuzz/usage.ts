import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { memoryOf } from '../../bench/processes.ts';
import type { Child } from '../support/child.ts';
import { until } from '../support/until.ts';

/** What a process has, when nothing is under way. */
export interface Usage {
  /** Resident, in bytes. */
  readonly resident: number;
  /** Live after a forced collection, in bytes: of JavaScript, and of buffers outside of its heap. */
  readonly heap: number;
  readonly external: number;
  readonly descriptors: number;
}

const descriptorsOf = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

/** Of a process that was started with `collect-garbage.mjs`. */
export async function usageOf(child: Child): Promise<Usage> {
  const told = () => [...child.output().matchAll(/LEFT (\{.*?\}) LEFT/g)];
  const before = told().length;
  child.process.kill('SIGWINCH');
  await until(() => {
    const { exitCode, signalCode } = child.process;
    assert.ok(
      exitCode === null && signalCode === null,
      `the gateway ended: ${exitCode} ${signalCode}\n${child.output()}`,
    );
    return told().length > before;
  });
  const { heapUsed, external } = JSON.parse(told().at(-1)?.[1] ?? '');
  const pid = child.process.pid as number;
  return { resident: memoryOf([pid]), heap: heapUsed, external, descriptors: descriptorsOf(pid) };
}
