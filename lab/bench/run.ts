import { measureDuties } from './duties/measure-duties.ts';
import { measureGrowth } from './growth/growth.ts';
import { DRIPPING, measureLatency, SLOW } from './latency.ts';
import { measureLongJob } from './long-job.ts';
import { MEMORY_ROWS, measureMemory } from './memory.ts';
import type { Options } from './options.ts';
import { measureOverload } from './overload.ts';
import { type Prepared, prepareRows } from './prepare.ts';
import { linesOf } from './report/comparison.ts';
import { commitOfCheckout, lookAtMachine, versionOf } from './report/machine.ts';
import type { Results } from './report/results.ts';
import { type Row, selectRows, UPSTREAM } from './rows.ts';
import { setUp, type Wanted } from './setup.ts';
import { installPeers, LTS, PEERS } from './targets/peers.ts';
import { measureThroughput } from './throughput.ts';

type OnProgress = (message: string) => void;

/** @throws when a response is wrong, or when the audit finds an error afterwards */
export async function run(options: Options, onProgress: OnProgress): Promise<Results> {
  const { paces, parts, processes } = options;
  const startedAt = performance.now();
  const rows = options.isWithRows ? selectRows(options.rows, processes) : [];
  const rowsOf = (part: keyof typeof ROWS_OF): Row[] => (parts.has(part) ? namedRows(ROWS_OF[part]) : []);
  const [latencyRows, firstByteRows] = [rowsOf('latency'), rowsOf('first-byte')];
  const overloadRows = rowsOf('overload');
  const all = [...rows, ...latencyRows, ...firstByteRows, ...overloadRows];
  const wanted: Wanted[] = all.map(({ target, processes: count }) => ({ name: target, processes: count }));
  if (parts.has('long-job') || parts.has('memory')) wanted.push({ name: 'ours', processes: 1 });
  // The prebuilt response is a copy of ours.
  if (wanted.some(({ name }) => name === 'prebuilt')) wanted.push({ name: 'ours', processes: 1 });

  const needsPeers = options.node === undefined || wanted.some(({ name }) => PEERS.includes(name));
  if (needsPeers) await installPeers('lab/bench/peers', onProgress);
  const node = options.node ?? LTS;
  const seen = lookAtMachine(node);
  const { sizes, tuning } = options;
  const growth =
    parts.has('growth') && (await measureGrowth(namedRows(ROWS_OF.growth), { node, tuning }, paces.growth, onProgress));
  const duties =
    parts.has('duties') && (await measureDuties(namedRows(ROWS_OF.duties), { node, tuning }, paces.duties, onProgress));
  const setup = await setUp(wanted, { node, sizes, tuning }, onProgress);
  try {
    // Before a request has warmed up the gateway.
    const memory =
      parts.has('memory') && (await measureMemory(setup, namedRows(ROWS_OF.memory), paces.memory, onProgress));
    const prepared = await prepareRows(setup, all, paces.warmUp, onProgress);
    const of = (some: readonly Row[]) => some.map(({ name }) => prepared.get(name) as Prepared);
    const rounds = rows.length > 0 && (await measureThroughput(setup, of(rows), paces.throughput, onProgress));
    const latency =
      parts.has('latency') && (await measureLatency(setup, of(latencyRows), SLOW, paces.latency, onProgress));
    const firstByte =
      parts.has('first-byte') && (await measureLatency(setup, of(firstByteRows), DRIPPING, paces.latency, onProgress));
    const overload =
      parts.has('overload') && (await measureOverload(setup, of(overloadRows), paces.overload, onProgress));
    const longJob = parts.has('long-job') && (await measureLongJob(setup, paces.throughput.rounds, onProgress));
    onProgress('auditing the books');
    await setup.books.audit();
    return {
      machine: { ...seen, postgres: await versionOf(setup.books.db), commit: await commitOfCheckout() },
      isComplete: options.isComplete,
      minutes: (performance.now() - startedAt) / 60_000,
      rounds: paces.throughput.rounds,
      ...(rounds && { throughput: linesOf(rows, rounds), throughputRounds: rounds }),
      ...(latency && { latency }),
      ...(firstByte && { firstByte }),
      ...(overload && { overload }),
      ...(longJob && { longJob }),
      ...(memory && { memory }),
      ...(growth && { growth }),
      ...(duties && { duties }),
    };
  } finally {
    await setup.close();
  }
}

const ROWS_OF = {
  latency: ['upstream', 'bare', 'portkey', 'card', 'prepaid', 'direct'],
  'first-byte': ['upstream', 'bare', 'portkey', 'card'],
  overload: ['card', 'prepaid', 'challenge'],
  memory: MEMORY_ROWS,
  growth: ['card', 'prepaid', 'direct'],
  duties: ['card', 'prepaid', 'direct'],
} as const;

function namedRows(names: readonly string[]): Row[] {
  const known = [UPSTREAM, ...selectRows([], [1])];
  return names.map((name) => known.find((row) => row.name === name) as Row);
}
