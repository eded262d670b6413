import { setTimeout as sleep } from 'node:timers/promises';
import type { LoadResult, Part } from './load/load.ts';
import { learn } from './prepare.ts';
import { memoryOf } from './processes.ts';
import type { Row } from './rows.ts';
import { AT_ONCE } from './servers/upstream.ts';
import type { Setup } from './setup.ts';
import { readMetrics } from './targets/metrics.ts';
import { CONCURRENCY } from './world.ts';

export interface MemoryPace {
  readonly requests: number;
  readonly idleSeconds: number;
}

/** In bytes. */
export interface MemoryLine {
  readonly label: string;
  readonly resident: number;
  readonly heapUsed: number;
  readonly heap: number;
  /** Memory of C++ objects that V8 knows of, with array buffers. */
  readonly external: number;
}

const SHARES = [
  ['card', 0.5],
  ['prepaid', 0.3],
  ['direct', 0.1],
  ['challenge', 0.1],
] as const;
export const MEMORY_ROWS = SHARES.map(([name]) => name);
/** Of one load, whose signatures expire after two minutes. */
const LOAD = { requests: 20_000, seconds: 90 };

/**
 * Measures the memory of a gateway without load, then after many requests, then without load again.
 * @param rows as MEMORY_ROWS, at a gateway that has had no request
 */
export async function measureMemory(
  setup: Setup,
  rows: readonly Row[],
  { requests, idleSeconds }: MemoryPace,
  onProgress: (message: string) => void,
): Promise<MemoryLine[]> {
  const { port, pid, adminPort } = setup.target('ours');
  const read = async (label: string): Promise<MemoryLine> => {
    const resident = memoryOf([pid]);
    const metrics = await readMetrics(adminPort as number);
    const bytes = (name: string) => metrics(`nodejs_${name}_bytes`)[0] as number;
    return {
      ...{ label, resident, heapUsed: bytes('heap_size_used'), heap: bytes('heap_size_total') },
      external: bytes('external_memory'),
    };
  };
  const idle = async (label: string) => {
    onProgress(`memory: idle for ${idleSeconds} s`);
    await sleep(idleSeconds * 1000);
    return read(label);
  };

  const atRest = await idle(`${idleSeconds} s after the start`);
  await setup.speak(AT_ONCE);
  const parts: Part[] = [];
  for (const [index, [name, share]] of SHARES.entries()) {
    parts.push({ name, share, ...(await learn(setup, rows[index] as Row)) });
  }
  for (let served = 0; served < requests; ) {
    onProgress(`memory: ${served.toLocaleString('en')} of ${requests.toLocaleString('en')} requests`);
    const { servedInAll } = await setup.load<LoadResult>(rows[0] as Row, {
      ...{ kind: 'load', port, parts, pace: { concurrency: CONCURRENCY }, targetPid: pid },
      ...{ warmUpSeconds: 0, seconds: LOAD.seconds, most: Math.min(LOAD.requests, requests - served) },
    });
    served += Object.values(servedInAll).reduce((sum, each) => sum + each, 0);
  }
  return [atRest, await read(`after ${requests.toLocaleString('en')} requests`), await idle(`${idleSeconds} s later`)];
}
