/** The disk of a real PostgreSQL is full while callers of every flow pay. */
import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import type { Observe, Sent } from '../../lab/soak/callers/line.ts';
import { runCallers } from '../../lab/soak/run.ts';
import { Teardowns } from '../../lab/soak/teardowns.ts';
import { startOneGateway } from '../../lab/soak/world/one-gateway.ts';
import { PostgresPart } from '../../lab/soak/world/postgres-part.ts';
import { migrate } from '../../src/db/migrate.ts';
import { databaseDirectory } from '../../test/support/database-directory.ts';
import { until } from '../../test/support/until.ts';
import { mountDisk } from './disk.ts';

const mounts = new Teardowns();
const folder = await mkdtemp(join(await databaseDirectory(), 'speechgate-full-'));
mounts.teardown(() => rm(folder, { recursive: true, force: true }));
// The database's account has to get through.
await chmod(folder, 0o711);
const disk = await mountDisk(mounts, join(folder, 'database'));
if (typeof disk === 'string') await mounts.close();

const FLOWS = ['card', 'job', 'prepaid', 'direct', 'deposit'];
const CALLERS = 7;

/** The flow of a request that pays. */
function flowOf({ path, headers = {} }: Sent): string | undefined {
  if (headers['x-x402-signature']) return 'prepaid';
  if (headers['payment-signature']) return path === '/x402/deposit' ? 'deposit' : 'direct';
  if (headers['x-credit-account']) return path.includes('async=true') ? 'job' : 'card';
  return undefined;
}

test('a full database disk loses no payment and leaves no hold in any flow', {
  skip: typeof disk === 'string' && disk,
}, async (t) => {
  t.teardown(() => mounts.close());
  assert.ok(typeof disk !== 'string');
  const postgres = await PostgresPart.open(t, join(folder, 'database'));
  await migrate(postgres.url);
  const env = { SPEECH_TIMEOUT_MS: '10000', RECONCILE_INTERVAL_MS: '1000' };
  const { service } = await startOneGateway(t, env, postgres.url);

  const failures: string[] = [];
  let answered = new Set<string>();
  const observe: Observe = (sent, { status, hasHungUp }) => {
    const flow = flowOf(sent);
    // A caller that has lost patience comes again.
    if (hasHungUp) return;
    if (status === 0 || status >= 500) failures.push(`${flow ?? sent.path}: ${status}`);
    if (flow !== undefined && (status < 300 || status === 503))
      answered.add(`${flow} ${status < 300 ? 'served' : 503}`);
  };
  const untilEach = async (how: 'served' | '503') => {
    answered = new Set();
    await until(() => FLOWS.every((flow) => answered.has(`${flow} ${how}`)), 120_000);
  };
  const breakParts = async () => {
    await untilEach('served');
    await disk.fill();
    await untilEach('503').finally(() => disk.free());
    await postgres.start();
    await untilEach('served');
    return [];
  };
  const { verdict } = await runCallers(t, service, { seed: folder, callers: CALLERS, observe, breakParts });
  console.error(`${failures.length} failures`);
  t.strictSame(
    failures.filter((failure) => !failure.endsWith(': 503')),
    [],
  );
  t.strictSame(verdict.contradictions, []);
});
