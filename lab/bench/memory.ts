import { setTimeout as sleep } from 'node:timers/promises';
import { type Cells, progress } from '../figures.ts';
import type { Part } from './load/main.ts';
import { memoryOf } from './processes.ts';
import { namedRows, type Row } from './rows.ts';
import type { Setup } from './setup.ts';
import { mebibytes } from './statistics.ts';
import { readMetrics } from './targets.ts';
import { learn } from './throughput.ts';
import { CONCURRENCY } from './world.ts';

export interface MemoryPace {
  readonly requests: number;
  readonly idleSeconds: number;
}

const SHARES = { card: 0.5, prepaid: 0.3, direct: 0.1, challenge: 0.1 };
/** Of one load, whose signatures expire after two minutes. */
const LOAD = { requests: 20_000, seconds: 90 };

/** Measures a gateway that has had no request: without load, then after many requests, then without load again. */
export async function measureMemory(setup: Setup, { requests, idleSeconds }: MemoryPace): Promise<Cells> {
  const rows = namedRows(...Object.keys(SHARES));
  const { port, pid, adminPort } = setup.target('ours');
  const read = async (when: string) => {
    const resident = mebibytes(memoryOf([pid]));
    const metrics = await readMetrics(adminPort as number);
    const of = (name: string) => mebibytes(metrics(`nodejs_${name}_bytes`)[0] as number);
    return [when, resident, of('heap_size_used'), of('heap_size_total'), of('external_memory')];
  };
  const idle = async (when: string) => {
    progress(`memory: idle for ${idleSeconds} s`);
    await sleep(idleSeconds * 1000);
    return read(when);
  };

  const atRest = await idle(`${idleSeconds} s after the start`);
  const parts: Part[] = [];
  for (const row of rows) {
    parts.push({ name: row.name, share: SHARES[row.name as keyof typeof SHARES], ...(await learn(setup, row)) });
  }
  for (let served = 0; served < requests; ) {
    progress(`memory: ${served.toLocaleString('en')} of ${requests.toLocaleString('en')} requests`);
    const result = await setup.load(rows[0] as Row, {
      ...{ port, parts, connections: CONCURRENCY, targetPid: pid, warmUpSeconds: 0 },
      ...{ seconds: LOAD.seconds, most: Math.min(LOAD.requests, requests - served) },
    });
    for (const { servedInAll } of Object.values(result.parts)) served += servedInAll;
  }
  const header = ['when', 'RSS', 'V8 heap used', 'V8 heap', 'external'];
  const loaded = await read(`after ${requests.toLocaleString('en')} requests`);
  return [header, atRest, loaded, await idle(`${idleSeconds} s later`)];
}
