import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Test, test } from 'tap';
import { FileBusyError, FileLock } from '../../../src/lib/file-lock.ts';
import { until } from '../../support/until.ts';
import { budgetPath, chargeOf, MAX_MICRO_USD, openBudget, prepaid, serviceThatCharged } from './support.ts';

const SPENDER = fileURLToPath(new URL('spender.js', import.meta.url));
const KILL_POINTS = Number(process.env.BUDGET_KILLS ?? 8);
const PROCESSES = 3;

test('killed processes never overspend, and the file accounts for every purchase', async (t) => {
  const path = await budgetPath(t);
  const limit = BigInt(KILL_POINTS) * 40n * MAX_MICRO_USD;
  const sent: string[] = [];
  let kills = 0;
  const spendAndDie = async () => {
    while (kills < KILL_POINTS) {
      kills++;
      const child = startSpender(t, 'spend', path, String(limit));
      await child.said(/^spends$/m);
      await sleep(Math.random() * 150);
      child.process.kill('SIGKILL');
      await child.ended;
      sent.push(...sentBy(child.output()));
    }
  };
  await Promise.all(Array.from({ length: PROCESSES }, spendAndDie));
  const budget = await openBudget(t, path, { totalMicroUsd: limit });
  const before = await budget.read();
  t.ok(before.spentMicroUsd + before.reservedMicroUsd <= limit);
  const lost = await budget.lost();
  t.ok(lost.length > 0, 'some were killed within a purchase');
  const unsent = lost.filter(({ pending }) => pending && !sent.includes(pending.identifier));
  const charges = Object.fromEntries(sent.map((identifier) => [identifier, chargeOf(identifier)]));
  for (const { pending } of unsent) Object.assign(charges, { [pending?.identifier ?? '']: 0n });
  await budget.concludeLost(serviceThatCharged(charges));
  const last = startSpender(t, 'spend', path, String(limit));
  await last.said(/^has spent$/m, 120_000);
  await last.ended;
  sent.push(...sentBy(last.output()));
  const { spentMicroUsd, reservedMicroUsd, leftMicroUsd } = await budget.read();
  t.strictSame(
    [spentMicroUsd, reservedMicroUsd],
    [sent.reduce((sum, identifier) => sum + chargeOf(identifier), 0n), 0n],
  );
  t.ok(leftMicroUsd !== null && leftMicroUsd < MAX_MICRO_USD && spentMicroUsd <= limit);
  t.comment(`${KILL_POINTS} kills, ${sent.length} purchases, ${lost.length} lost, ${unsent.length} of them unsent`);
});

test('reservations of a stopped process are not lost, those of a killed one are', async (t) => {
  const path = await budgetPath(t);
  const budget = await openBudget(t, path, { totalMicroUsd: 20n });
  const child = startSpender(t, 'reserve', path);
  await child.said(/^reserved$/m);
  await stopWithoutLock(child, path);
  t.strictSame(await budget.lost(), []);
  child.process.kill('SIGKILL');
  await child.ended;
  await until(async () => (await budget.lost()).length === 2);
  await budget.concludeLost(serviceThatCharged({ recorded: 6n }));
  t.equal((await budget.read()).leftMicroUsd, 14n);
});

for (const end of ['goes on', 'is killed'] as const) {
  test(`a waiter gets the lock of a stopped process as soon as it ${end}`, async (t) => {
    const path = await budgetPath(t);
    const budget = await openBudget(t, path);
    const child = startSpender(t, 'holdLock', path);
    await child.said(/^holds$/m);
    child.process.kill('SIGSTOP');
    let isReserved = false;
    const reservation = budget.reserve(prepaid(1n)).finally(() => (isReserved = true));
    const lock = await FileLock.open(`${path}.lock`);
    t.teardown(() => lock.close());
    await assert.rejects(lock.acquire(200), FileBusyError);
    t.ok(!isReserved, 'it waits, and the process does everything else');
    child.process.stdin?.write('release\n');
    child.process.kill(end === 'goes on' ? 'SIGCONT' : 'SIGKILL');
    await (await reservation).settle(1n);
    t.equal((await budget.read()).spentMicroUsd, 1n);
  });
}

test('a full disk refuses new reservations and keeps the earlier ones', async (t) => {
  const path = await budgetPath(t);
  const folder = dirname(path);
  const mount = 'mount -t tmpfs -o size=128k,mode=700 tmpfs "$0"';
  if (spawnSync('unshare', ['-rm', 'sh', '-c', mount, folder]).status !== 0)
    return t.plan(0, 'it takes a mount in a user namespace, which this machine does not allow');
  const command = `${mount} && exec "$1" "$2" fillDisk "$3"`;
  const child = spawn('unshare', ['-rm', 'sh', '-c', command, folder, process.execPath, SPENDER, path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.strictSame(JSON.parse((await buffer(child.stdout)).toString()), {
    code: 'ENOSPC',
    isKept: true,
    isTold: true,
    isFreed: true,
  });
});

function startSpender(t: Test, ...args: string[]) {
  const child = spawn(process.execPath, [SPENDER, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (chunk) => (output += chunk));
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  t.teardown(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return {
    process: child,
    ended,
    output: () => output,
    said: (pattern: RegExp, timeoutMs?: number) => until(() => pattern.test(output), timeoutMs),
  };
}

/** Stops a process while the lock is ours: it says what it has done a moment before it releases it. */
async function stopWithoutLock(child: ReturnType<typeof startSpender>, path: string): Promise<void> {
  const lock = await FileLock.open(`${path}.lock`);
  await lock.acquire();
  child.process.kill('SIGSTOP');
  await lock.close();
}

const sentBy = (output: string): string[] => [...output.matchAll(/^sent (\w+)$/gm)].map(([, id]) => id as string);
