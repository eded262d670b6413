import type { Test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { type Bucket, RollingWindow } from '../../src/limits/rolling-window.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { testDatabase } from '../support/database.ts';
import { controlDatabaseClock } from '../support/database-clock.ts';

export const ip = (key: string): Bucket => ({ scope: 'ip', key });

export async function setUp(t: Test, options = { max: 30, windowSeconds: 60 }) {
  const { url } = await testDatabase(t);
  const clock = await controlDatabaseClock(url);
  const db = openDatabase(url);
  t.teardown(async () => {
    await db.destroy();
    await clock.close();
  });
  const window = (changed = {}) => new RollingWindow(db, { ...options, ...changed }, new Metrics());
  return { url, db, clock, window, limits: window() };
}
