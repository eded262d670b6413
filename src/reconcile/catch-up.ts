import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../db/database.ts';
import { readTurnBegin } from '../payments/top-up/open-purchases.ts';
import { readAgainSince, unread } from '../payments/top-up/sweep-pass.ts';
import type { TurnResult } from './reconciler.ts';
import type { ReconcilerRunner } from './runner.ts';

const MOST_TURNS = 500;
const PAUSE_MS = 500;

/** Runs every reconciler until the processor was asked about everything since then. */
export async function catchUp(db: Database, runner: ReconcilerRunner, since: Date): Promise<TurnResult[]> {
  await readAgainSince(db, since);
  const { begin } = await readTurnBegin(db);
  const totals = new Map<string, TurnResult>();
  let leftBefore = await unread(db, begin);
  for (let turns = 0; turns < MOST_TURNS; turns++) {
    const results = await runner.turn();
    for (const result of results) {
      const before = totals.get(result.name);
      // A turn that another process had does not replace an earlier result.
      const outcome = result.outcome === 'skipped' && before ? before.outcome : result.outcome;
      const problems = [...(before?.problems ?? []), ...(result.problems ?? [])];
      totals.set(result.name, {
        ...(before?.outcome === 'failed' ? before : { ...result, outcome }),
        count: (before?.count ?? 0) + result.count,
        ...(problems.length > 0 && { problems }),
      });
    }
    const left = await unread(db, begin);
    // What fails goes behind all that waits, so continue while there is progress.
    if (results.some(({ outcome }) => outcome === 'failed') && left >= leftBefore) break;
    leftBefore = left;
    const isSkipped = [...totals.values()].some(({ outcome }) => outcome === 'skipped');
    if (!isSkipped && left === 0) break;
    if (isSkipped) await sleep(PAUSE_MS);
  }
  return [...totals.values()];
}
