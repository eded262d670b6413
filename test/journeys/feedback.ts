import type { Test } from 'tap';
import { testDatabase } from '../support/database.ts';
import { controlDatabaseClock } from '../support/database-clock.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';

/** A gateway whose database's clock the test moves. */
export async function gatewayWithClock(t: Test, env: Record<string, string> = {}) {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await controlDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  return { clock, gateway: await startGateway(t, env, { databaseUrl }) };
}

export const stored = (gateway: Gateway) =>
  gateway.db.selectFrom('feedback').selectAll().orderBy('received_at').execute();
