import assert from 'node:assert/strict';
import { describe, type FuzzResult } from './fuzz.ts';

const MIB = 1024 * 1024;
/** How much more than after the warm-up may be live after a forced collection at the end: code, caches, counters. */
const HEAP_GROWTH = 12 * MIB;
/** Resident memory follows the heap with the allocator's gaps, and is no better known than that. */
const RESIDENT_GROWTH = 96 * MIB;
/** The pools to database, facilitator and upstream are smaller or larger by so many connections. */
const DESCRIPTOR_GROWTH = 20;

export function print({ figures, failures, usage, audits }: FuzzResult): void {
  console.table(figures.requests);
  console.table(figures.statuses);
  console.table(figures.reached);
  console.log(`declared, and never seen: ${figures.unreached.join(', ')}`);
  console.log(`served, and forbidden by openapi-enforcer: ${figures.forbidden.size}`);
  for (const [fault, bytes] of figures.forbidden) console.log(`${fault}\n  ${JSON.stringify(bytes)}`);
  for (const each of usage) console.log(describe(each));
  for (const { code, output } of audits) console.log(code === 0 ? 'the books agree' : output);
  for (const { kind, seed, path, shown, error } of failures) {
    console.log(
      `npm run fuzz -- --kind ${kind} --seed ${seed} --path ${path}\n${shown.slice(0, 3000)}\n${error.slice(0, 3000)}`,
    );
  }
}

/**
 * Nothing failed, the books agree, and the gateway has not grown since its warm-up. What it holds is measured when nothing
 * is under way, after a forced collection, so that neither the collector's nor the load's moment decides.
 */
export function assertSound({ failures, usage, audits }: FuzzResult): void {
  assert.deepEqual(
    failures.map(({ kind, error }) => `${kind}: ${error.split('\n')[0]}`),
    [],
  );
  for (const { code, output } of audits) assert.equal(code, 0, output);
  const [first, last] = [usage[0], usage.at(-1)];
  if (!first || !last) return;
  assert.ok(
    last.heap + last.external - first.heap - first.external < HEAP_GROWTH,
    `live memory: ${describe(first)} became ${describe(last)}`,
  );
  assert.ok(
    last.resident - first.resident < RESIDENT_GROWTH,
    `resident memory: ${describe(first)} became ${describe(last)}`,
  );
  assert.ok(
    last.descriptors - first.descriptors < DESCRIPTOR_GROWTH,
    `descriptors: ${describe(first)} became ${describe(last)}`,
  );
}
