import { pino } from 'pino';
import type { Test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import type { Reconciler } from '../../src/reconcile/reconciler.ts';
import { ReconcilerRunner } from '../../src/reconcile/runner.ts';

interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly reconciler?: string;
}

export function setUp(
  t: Test,
  databaseUrl: string,
  reconcilers: Reconciler[],
  { intervalMs = 60_000 }: { intervalMs?: number } = {},
) {
  const lines: LogLine[] = [];
  const reported: [string, number][] = [];
  const db = openDatabase(databaseUrl, { maxConnections: 3 });
  const runner = new ReconcilerRunner({
    db,
    reconcilers,
    intervalMs,
    log: pino({ level: 'info' }, { write: (line) => lines.push(JSON.parse(line)) }),
    onResult: (name, count) => reported.push([name, count]),
  });
  t.teardown(async () => {
    await runner.stop();
    await db.destroy();
  });
  return { db, runner, lines, reported };
}

export function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}
