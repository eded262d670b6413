import type { Database } from '../../src/db/database.ts';
import { invariants } from './audit-rules.ts';

class Rollback<T> extends Error {
  constructor(readonly value: T) {
    super();
  }
}

/** Does the work in a transaction, undoes it, and tells what the work has told. */
export async function rolledBack<T>(db: Database, work: (trx: Database) => Promise<T>): Promise<T> {
  try {
    return await db.transaction().execute(async (trx) => {
      throw new Rollback(await work(trx));
    });
  } catch (error) {
    if (error instanceof Rollback) return error.value;
    throw error;
  }
}

/** The rules of the audit that do not hold, as the transaction sees the ledger. */
export async function brokenRules(trx: Database): Promise<string[]> {
  const broken: string[] = [];
  for (const { rule, breaches } of invariants) {
    if ((await breaches.execute(trx)).rows.length > 0) broken.push(rule);
  }
  return broken;
}
