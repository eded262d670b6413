import assert from 'node:assert/strict';
import { describe, type FuzzResult } from './fuzz.ts';

const MIB = 1024 * 1024;
/** Allowed growth since the warm-up: code, caches, counters, and gaps in the allocator. */
const RESIDENT_GROWTH = 96 * MIB;
/** Connection pools may differ by this many connections. */
const DESCRIPTOR_GROWTH = 20;

export function print({ figures, failures, usage, audit }: FuzzResult): void {
  console.table(Object.fromEntries(figures.requests));
  console.table(Object.fromEntries([...figures.reached].sort()));
  console.log(`declared, and never seen: ${figures.unreached.join(', ')}`);
  console.log(`served, and forbidden by openapi-enforcer: ${figures.forbidden.size}`);
  for (const [fault, bytes] of figures.forbidden) console.log(`${fault}\n  ${JSON.stringify(bytes)}`);
  for (const each of usage) console.log(describe(each));
  console.log(audit.code === 0 ? 'the books agree' : audit.output);
  for (const { kind, seed, path, shown, error } of failures) {
    console.log(
      `npm run lab -- fuzz --kind ${kind} --seed ${seed} --path ${path}\n${shown.slice(0, 3000)}\n${error.slice(0, 3000)}`,
    );
  }
}

/** @throws on a failure, on books that disagree, or when the idle gateway has grown since its warm-up */
export function assertSound({ failures, usage, audit }: FuzzResult): void {
  assert.deepEqual(
    failures.map(({ kind, error }) => `${kind}: ${error.split('\n')[0]}`),
    [],
  );
  assert.equal(audit.code, 0, audit.output);
  const [first, last] = [usage[0], usage.at(-1)];
  if (!first || !last) return;
  assert.ok(
    last.residentBytes - first.residentBytes < RESIDENT_GROWTH,
    `resident memory: ${describe(first)} became ${describe(last)}`,
  );
  assert.ok(
    last.descriptors - first.descriptors < DESCRIPTOR_GROWTH,
    `descriptors: ${describe(first)} became ${describe(last)}`,
  );
}
