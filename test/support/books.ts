import type { Database } from '../../src/db/database.ts';
import { until } from './until.ts';

/** Waits until no request's hold is pending: what was delivered is charged then, what failed is void. */
export const booksClosed = (db: Database): Promise<void> =>
  until(async () => {
    const pending = db
      .selectFrom('transfer')
      .select('id')
      .where('state', '=', 'pending')
      .where('lease_until', 'is not', null);
    return (await pending.limit(1).execute()).length === 0;
  });
