import assert from 'node:assert/strict';
import { readdirSync, readlinkSync } from 'node:fs';
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
  /** Open, without the directories of the audio store. */
  readonly descriptors: number;
}

/** The store of audio keeps its 256 directories open from the first object that it puts into each. */
const DIRECTORY_OF_STORE = /\/audio\/[0-9a-f]{2}$/;

function descriptorsOf(pid: number): number {
  const folder = `/proc/${pid}/fd`;
  const linkOf = (descriptor: string) => {
    try {
      return readlinkSync(`${folder}/${descriptor}`);
    } catch {
      return undefined;
    }
  };
  const links = readdirSync(folder).map(linkOf);
  return links.filter((link) => link !== undefined && !DIRECTORY_OF_STORE.test(link)).length;
}

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
