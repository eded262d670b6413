import { openDatabase } from '../../src/db/database.ts';
import { openDebits } from './debit.ts';

/** Debits through the ledger's functions, so many at a time, each on one of the first accounts. */
export interface DebitJob {
  readonly databaseUrl: string;
  readonly accounts: number;
  readonly concurrency: number;
  readonly seconds: number;
}

export interface DebitResult {
  readonly debitsPerSecond: number;
}

process.once('message', async ({ databaseUrl, accounts, concurrency, seconds }: DebitJob) => {
  const db = openDatabase(databaseUrl, { maxConnections: concurrency });
  const debit = openDebits(db);
  const debitUntil = async (deadline: number) => {
    let debits = 0;
    for (; performance.now() < deadline; debits++) await debit(Math.floor(Math.random() * accounts));
    return debits;
  };
  const run = (forMs: number) => {
    const deadline = performance.now() + forMs;
    return Promise.all(Array.from({ length: concurrency }, () => debitUntil(deadline)));
  };
  await run(200);
  const startedAt = performance.now();
  const debits = (await run(seconds * 1000)).reduce((sum, count) => sum + count, 0);
  const result: DebitResult = { debitsPerSecond: (debits / (performance.now() - startedAt)) * 1000 };
  await db.destroy();
  process.send?.(result);
  process.disconnect();
});
