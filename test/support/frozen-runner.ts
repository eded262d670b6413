import { pino } from 'pino';
import { openDatabase } from '../../src/db/database.ts';
import { ReconcilerRunner } from '../../src/reconcile/runner.ts';

/*
 * A process whose reconciler `probe` begins a turn and stays in it until it is told that the turn is not its own any more.
 * For tests that freeze a process.
 */

const db = openDatabase(process.env.DATABASE_URL ?? '', { maxConnections: 2 });
const probe = {
  name: 'probe',
  run: ({ signal }: { signal: AbortSignal }) =>
    new Promise<void>((resolve) => {
      console.log('begun');
      signal.addEventListener('abort', () => {
        console.log('told');
        resolve();
      });
    }),
};
const runner = new ReconcilerRunner({ db, reconcilers: [probe], intervalMs: 60_000, log: pino({ level: 'silent' }) });
await runner.turn();
console.log('left');
await db.destroy();
