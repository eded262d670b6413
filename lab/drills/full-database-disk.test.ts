/** The disk of a real PostgreSQL is full while callers of every flow pay. */
import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import type { Owner } from '../../test/support/child.ts';
import { databaseDirectory } from '../../test/support/database-directory.ts';
import { until } from '../../test/support/until.ts';
import type { Observe, Sent } from '../soak/callers/line.ts';
import { runCallers } from '../soak/run.ts';
import { startOneGateway } from '../soak/world/one-gateway.ts';
import { PostgresPart } from '../soak/world/parts.ts';

const run = promisify(execFile);
const withoutRoot = process.getuid?.() !== 0 && 'mount needs root, if only of a user namespace';
/** Only what is used takes memory. */
const SIZE_BYTES = 12 * 1024 ** 3;
const FLOWS = ['card', 'job', 'prepaid', 'direct', 'deposit'];
const CALLERS = 7;

/** The flow of a request that pays. */
function flowOf({ path, headers = {} }: Sent): string | undefined {
  if (headers['x-x402-signature']) return 'prepaid';
  if (headers['payment-signature']) return path === '/x402/deposit' ? 'deposit' : 'direct';
  if (headers['x-credit-account']) return path.includes('async=true') ? 'job' : 'card';
  return undefined;
}

test('a full database disk loses no payment and leaves no hold in any flow', { skip: withoutRoot }, async (t) => {
  const folder = await mkdtemp(join(await databaseDirectory(), 'speechgate-full-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  // The database's account has to get through.
  await chmod(folder, 0o711);
  const disk = await mountDisk(t, join(folder, 'database'));
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

/** A file system in memory that can be full. */
async function mountDisk(owner: Owner, path: string) {
  await mkdir(path, { recursive: true });
  await run('mount', ['-t', 'tmpfs', '-o', `size=${SIZE_BYTES},mode=0711`, 'tmpfs', path]);
  // Whoever still has a file open there is about to end.
  owner.teardown(() => run('umount', ['--lazy', path]));
  const resize = (bytes: number) => run('mount', ['-o', `remount,size=${bytes}`, path]);
  return {
    /** From now on there is no room for another page. */
    fill: () =>
      // What is written meanwhile would make the size smaller than what is used, which is refused.
      until(async () => {
        const { blocks, bfree, bsize } = await statfs(path);
        return resize((blocks - bfree) * bsize).then(
          () => true,
          () => false,
        );
      }),
    free: () => resize(SIZE_BYTES),
  };
}
