import type { Contradiction, Verdict } from './judge/judge.ts';
import { KINDS } from './judge/rule.ts';
import type { Run } from './run.ts';

const MOST_SHOWN = 30;
/** A fault that ended this long before an operation began may still affect it. */
const BEFORE_MS = 5_000;

export const isClean = ({ contradictions }: Verdict): boolean => contradictions.length === 0;

export function printRun({ verdict, faults, operations, requests, seconds, told }: Run): void {
  const rate = Math.round(operations / seconds);
  console.log(`${operations} operations, ${requests} requests in ${Math.round(seconds)} s, ${rate} operations/s`);
  const ends: Record<string, Record<string, number>> = {};
  for (const { flow, ended, count } of verdict.ends) ends[flow] = { ...ends[flow], [ended]: Number(count) };
  console.table(ends);
  const struck: Record<string, { struck: number }> = {};
  for (const { name } of faults) struck[name] = { struck: (struck[name]?.struck ?? 0) + 1 };
  console.table(struck);
  console.log('micro-USD');
  const money = verdict.money.map(({ flow, told, ledger, chain, processor }) => [
    flow,
    {
      told: Number(told),
      ledger: Number(ledger),
      chain: Number(chain ?? 0) || '',
      processor: Number(processor ?? 0) || '',
    },
  ]);
  console.table(Object.fromEntries(money));
  const counts = KINDS.map((kind) => [kind, verdict.contradictions.filter((each) => each.kind === kind).length]);
  console.table(Object.fromEntries(counts));
  const { count, farthestSeconds } = verdict.spared;
  console.log(
    `${count} answers came, and are not charged since their process was killed or frozen (at most ${farthestSeconds} s apart)`,
  );
  console.log(`what callers were told: ${told}`);
}

/** Prints contradictions, each with its operation and the faults during it. */
export function printFailure({ verdict, faults }: Run): void {
  const { contradictions } = verdict;
  for (const contradiction of contradictions.slice(0, MOST_SHOWN)) {
    console.log(`${contradiction.kind.toUpperCase()}: ${wordsOf(contradiction)}`);
    const { operation } = contradiction;
    if (!operation) continue;
    const { begun_at, ended_at } = operation;
    const meanwhile = faults.filter(({ from, until }) => from < ended_at && until > begun_at - BEFORE_MS);
    for (const { name, from, until } of meanwhile)
      console.log(`  meanwhile ${name}, ${seconds(from)} to ${seconds(until)}`);
  }
  const left = contradictions.length - MOST_SHOWN;
  if (left > 0) console.log(`and ${left} more`);
}

function wordsOf({ words, detail, operation }: Contradiction): string {
  const told = operation && `${operationOf(operation)}, ${JSON.stringify(operation.keys)}`;
  return [words, detail, told].filter(Boolean).join('; ');
}

const operationOf = ({ caller, number, flow, ended, begun_at, ended_at }: NonNullable<Contradiction['operation']>) =>
  `${caller} #${number} (${flow}, ${ended}), ${seconds(begun_at)} to ${seconds(ended_at)}`;

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
