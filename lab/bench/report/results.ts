import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { DutyLine } from '../duties/measure-duties.ts';
import type { GrowthLine } from '../growth/growth.ts';
import type { LatencyLine } from '../latency.ts';
import type { LongJobLine } from '../long-job.ts';
import type { MemoryLine } from '../memory.ts';
import type { OverloadLine } from '../overload.ts';
import { PROJECT } from '../targets/program.ts';
import type { Rounds } from '../throughput.ts';
import type { Line } from './comparison.ts';
import type { Machine } from './machine.ts';

export interface Results {
  readonly machine: Machine;
  /** All rows and parts at full length. */
  readonly isComplete: boolean;
  readonly minutes: number;
  readonly rounds: number;
  readonly throughput?: readonly Line[];
  readonly throughputRounds?: Rounds;
  readonly latency?: readonly LatencyLine[];
  readonly firstByte?: readonly LatencyLine[];
  readonly overload?: readonly OverloadLine[];
  readonly longJob?: LongJobLine;
  readonly memory?: readonly MemoryLine[];
  readonly growth?: readonly GrowthLine[];
  readonly duties?: readonly DutyLine[];
}

const FOLDER = join(PROJECT, 'lab/bench/results');

/** @returns the file's name */
export async function saveResults(results: Results): Promise<string> {
  const file = join(FOLDER, `${results.machine.startedAt.replaceAll(':', '-')}.json`);
  await mkdir(FOLDER, { recursive: true });
  await writeFile(file, `${JSON.stringify(results, undefined, 2)}\n`);
  return file;
}

export const loadResults = async (file: string): Promise<Results> => JSON.parse(await readFile(file, 'utf8'));
