import type { BurstResult } from './load/burst.ts';
import type { Prepared } from './prepare.ts';
import { memoryOf, processTree } from './processes.ts';
import { AT_ONCE, type Manner } from './servers/upstream.ts';
import type { Setup } from './setup.ts';

/** What many callers at a time do to the memory of the gateway. */
export interface MemoryLine {
  readonly label: string;
  /** Resident, in bytes: before the first request, and at its highest. */
  readonly before: number;
  readonly highest: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

interface Crowd {
  readonly label: string;
  readonly row: string;
  readonly connections: number;
  readonly arrivalSeconds: number;
  readonly pauseMs: number;
  readonly manner: Manner;
}

/** About a MiB of whole frames. */
const LONG_AUDIO_BYTES = 2_731 * 384;
/** 24 KB that take a second. */
const SPOKEN: Manner = { ...AT_ONCE, delayMs: 40, pieces: 25, pieceMs: 40 };

const CROWDS: readonly Crowd[] = [
  {
    label: '1,000 who read 64 KiB each 300 ms of 1 MiB, card',
    ...{ row: 'card', connections: 1_000, arrivalSeconds: 3, pauseMs: 300 },
    manner: { ...AT_ONCE, bytes: LONG_AUDIO_BYTES },
  },
  ...['card', 'prepaid', 'direct'].map((row) => ({
    label: `200 for whom a second is spoken at once, ${row}`,
    ...{ row, connections: 200, arrivalSeconds: 0, pauseMs: 0, manner: SPOKEN },
  })),
];

const SAMPLE_EVERY_MS = 25;

/** @param rows of the gateway; crowds of others are left out */
export async function measureMemory(
  setup: Setup,
  rows: readonly Prepared[],
  onProgress: (message: string) => void,
): Promise<MemoryLine[]> {
  const lines: MemoryLine[] = [];
  for (const { label, row: name, manner, ...crowd } of CROWDS) {
    const prepared = rows.find(({ row }) => row.name === name);
    if (!prepared) continue;
    onProgress(`memory: ${label}`);
    const { row, plan, expected } = prepared;
    const { port, pid } = setup.target(row.target);
    await setup.speak(manner);
    const processes = processTree(pid);
    const before = memoryOf(processes);
    let highest = before;
    const sampling = setInterval(() => {
      highest = Math.max(highest, memoryOf(processes));
    }, SAMPLE_EVERY_MS);
    try {
      const job = { port, plan, expected: { ...expected, bytes: manner.bytes }, ...crowd };
      const result = await setup.load<BurstResult>(row, { kind: 'burst', ...job });
      lines.push({ label, before, highest, ...result });
    } finally {
      clearInterval(sampling);
      await setup.speak(AT_ONCE);
    }
  }
  return lines;
}
