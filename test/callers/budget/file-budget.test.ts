import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmod, chown, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { mock } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { test } from 'tap';
import { DamagedBudgetError } from '../../../src/callers/budget/budget-store.ts';
import { type FileBudget, openFileBudget } from '../../../src/callers/budget/file-budget.ts';
import { watchLost } from '../../../src/callers/budget/purchases.ts';
import { SavedPurchases } from '../../../src/callers/cli/saved-purchases.ts';
import { OverCapError } from '../../../src/callers/client/errors.ts';
import { ForeignFileError } from '../../../src/lib/private-files.ts';
import { budgetPath, openBudget, pendingOf, prepaid, serviceThatCharged } from './support.ts';

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');

const overCap = (scope: string, leftMicroUsd: bigint) => (error: unknown) => {
  assert.ok(error instanceof OverCapError, String(error));
  assert.deepEqual([error.scope, error.leftMicroUsd], [scope, leftMicroUsd]);
  return true;
};

/** Purchases of 10 micro-USD each, whose process has ended. */
async function leaveOpen(path: string, ...identifiers: string[]): Promise<void> {
  const ended = await openFileBudget(path, {});
  for (const identifier of identifiers) await (await ended.reserve(prepaid(10n))).record(pendingOf(identifier));
  await ended.close();
}

test('each limit admits its exact amount and refuses one micro-USD more', async (t) => {
  const path = await budgetPath(t);
  const perCall = await openBudget(t, path, { perCallMicroUsd: 100n });
  await assert.rejects(perCall.reserve(prepaid(101n)), overCap('call', 100n));
  await (await perCall.reserve(prepaid(100n))).settle(100n);
  t.equal((await perCall.read()).leftMicroUsd, null, 'nothing limits the sum');
  const perDay = await openBudget(t, path, { perDayMicroUsd: 150n, totalMicroUsd: 1000n });
  await assert.rejects(perDay.reserve(prepaid(51n)), overCap('day', 50n));
  await (await perDay.reserve(prepaid(50n))).settle(50n);
  t.equal((await perDay.read()).leftMicroUsd, 0n);
  const lower = await openBudget(t, path, { totalMicroUsd: 40n });
  t.equal((await lower.read()).leftMicroUsd, 0n, 'a limit below what is spent leaves nothing');
  await assert.rejects(lower.reserve(prepaid(1n)), overCap('total', 0n));
  await assert.rejects(lower.reserve(prepaid(0n)), overCap('total', 0n));
  const huge = 2n ** 200n;
  const unlimited = await openBudget(t, path);
  await (await unlimited.reserve(prepaid(huge))).settle(huge);
  t.equal((await unlimited.read()).spentMicroUsd, huge + 150n);
});

const TODAY = Date.parse('2026-11-23T12:00:00Z');
const NOON_SECONDS = TODAY / 1000;

test('a refusal tells what is spent, what is reserved, and how long its signatures are valid', async (t) => {
  let now = TODAY;
  const budget = await openBudget(t, await budgetPath(t), { perDayMicroUsd: 1000n }, () => now);
  await (await budget.reserve(prepaid(300n))).settle(300n);
  const buy = async (identifier: string, expiresAt: number | null) => {
    const reservation = await budget.reserve(prepaid(200n));
    await reservation.record(pendingOf(identifier, { expiresAt, maxMicroUsd: '200' }));
    return reservation;
  };
  const refusal = async () => {
    const error = await budget.reserve(prepaid(800n)).catch((error) => error);
    assert.ok(error instanceof OverCapError, String(error));
    const { reservedMicroUsd, reservedUntil } = await budget.read();
    const { unconfirmedMicroUsd: _, ...used } = error.used;
    assert.deepEqual(used, { spentMicroUsd: 300n, reservedMicroUsd, reservedUntil });
    return [reservedMicroUsd, reservedUntil?.toISOString().slice(11, 19) ?? null, error.message] as const;
  };
  const [refused, open] = [await buy('refused', NOON_SECONDS + 60), await buy('open', NOON_SECONDS + 30)];
  await refused.settle(0n);
  const [reserved, until, message] = await refusal();
  t.strictSame([reserved, until], [400n, '12:01:30']);
  t.match(
    message,
    /800 .* only 300 of the cap of 1000 is left: 300 is spent, 400 is reserved .* until 2026-11-23T12:01:30Z\./,
  );
  now += 90_000;
  t.strictSame((await refusal()).slice(0, 2), [200n, null]);
  await open.settle(0n);
  await buy('a job', null);
  const [, , ofJob] = await refusal();
  await (await buy('absurd', NOON_SECONDS)).settle(0n, { clockAheadMs: 9e15 });
  t.equal((await budget.read()).reservedUntil?.getTime(), 8.64e15);
  t.match(ofJob, /200 is reserved for purchases that may still be charged\. Raise/);
});

test('what is left for a wallet counts signatures that only the service reports as not charged', async (t) => {
  let now = TODAY;
  const budget = await openBudget(t, await budgetPath(t), { perDayMicroUsd: 1000n, totalMicroUsd: 1500n }, () => now);
  for (const identifier of ['one', 'two']) {
    const reservation = await budget.reserve(prepaid(400n));
    await reservation.record(pendingOf(identifier, { expiresAt: NOON_SECONDS, maxMicroUsd: '400' }));
    await reservation.settle(0n);
  }
  now += 60_000;
  for (const flow of ['card', 'direct', 'prepaid'] as const) {
    const left = flow === 'card' ? 1000n : 200n;
    t.equal((await budget.read(flow)).leftMicroUsd, left, flow);
    await assert.rejects(
      budget.reserve({ flow, maxMicroUsd: left + 1n }),
      flow === 'card' ? overCap('day', left) : overCap('unconfirmed', left),
    );
    await (await budget.reserve({ flow, maxMicroUsd: left })).settle(0n, { isUnsent: true });
  }
  await t.rejects(budget.reserve(prepaid(201n)), /800 was signed for purchases that the service reports as/);
});

test('a negative amount, one above the reservation, and a record after the settlement are refused', async (t) => {
  const budget = await openBudget(t, await budgetPath(t), { totalMicroUsd: 10n });
  await t.rejects(budget.reserve(prepaid(-1n)), RangeError);
  const reservation = await budget.reserve(prepaid(10n));
  await t.rejects(reservation.settle(-1n), RangeError);
  await t.rejects(reservation.record(pendingOf('a', { maxMicroUsd: '11' })), RangeError);
  t.equal((await budget.read()).reservedMicroUsd, 10n);
  await reservation.settle(4n);
  await t.rejects(reservation.record(pendingOf('late')), /already settled/);
});

test('hundreds of parallel reservations by several openers stay within the limit', async (t) => {
  const path = await budgetPath(t);
  const limits = { perDayMicroUsd: 1000n, totalMicroUsd: 1000n };
  const budgets = await Promise.all([1, 2, 3].map(() => openBudget(t, path, limits)));
  const attempts = budgets.flatMap((budget) => Array.from({ length: 100 }, () => budget.reserve(prepaid(7n))));
  const ends = await Promise.allSettled(attempts);
  const reserved = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
  t.equal(reserved.length, 142);
  for (const end of ends) if (end.status === 'rejected') t.ok(end.reason instanceof OverCapError);
  await Promise.all(reserved.map((reservation) => reservation.settle(3n)));
  t.equal((await openBudget(t, path).then((budget) => budget.read())).spentMicroUsd, 426n);
});

test('one failed lookup does not stop the lookup of other lost purchases', async (t) => {
  const path = await budgetPath(t);
  await leaveOpen(path, 'first', 'second');
  const living = await openBudget(t, path);
  const failure = new Error('connection refused');
  const service = {
    resolveOutcome: async ({ identifier }: { identifier: string }) => {
      if (identifier === 'first') throw failure;
      return { chargedMicroUsd: 3n, speech: null };
    },
  };
  await assert.rejects(living.concludeLost(service), failure);
  const { spentMicroUsd, reservedMicroUsd } = await living.read();
  t.strictSame([spentMicroUsd, reservedMicroUsd], [3n, 10n]);
});

test('a lost purchase with audio is saved before it settles, or its audio is canceled', async (t) => {
  const path = await budgetPath(t);
  await leaveOpen(path, 'heard', 'unsaved');
  const living = await openBudget(t, path);
  let canceled = 0;
  const resolveOutcome = async () => {
    const audio = new ReadableStream<Uint8Array>({ cancel: () => void canceled++ });
    return { chargedMicroUsd: 2n, speech: { audio } };
  };
  const full = { save: () => Promise.reject(new Error('The disk is full.')) };
  await t.rejects(living.concludeLost({ resolveOutcome }, full), /full/);
  t.equal((await living.read()).reservedMicroUsd, 20n);
  const kept = new SavedPurchases(dirname(path));
  await living.concludeLost({ resolveOutcome }, kept);
  t.strictSame((await kept.find('heard'))?.pending, pendingOf('heard'));
  t.equal((await living.read()).spentMicroUsd, 4n);
  await leaveOpen(path, 'canceled');
  canceled = 0;
  await living.concludeLost({ resolveOutcome });
  t.equal(canceled, 1);
});

test('lookups of lost purchases do not overlap', async (t) => {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  let looks = 0;
  let end = () => {};
  const concludeLost = () => {
    looks += 1;
    return new Promise<void>((resolve) => (end = resolve));
  };
  t.teardown(watchLost({ concludeLost }, serviceThatCharged({})));
  mock.timers.tick(60_000);
  t.equal(looks, 1);
  end();
  await new Promise(setImmediate);
  mock.timers.tick(60_000);
  t.equal(looks, 2);
});

test('a purchase of a live process counts as lost a minute after it expires', async (t) => {
  const path = await budgetPath(t);
  const expiresAt = Math.floor(Date.now() / 1000);
  let now = expiresAt * 1000;
  const budget = await openBudget(t, path, {}, () => now);
  const reservation = await budget.reserve(prepaid(10n));
  await reservation.record(pendingOf('given up', { expiresAt }));
  now += 60_000;
  t.strictSame(await budget.lost(), []);
  now += 1;
  await budget.concludeLost(serviceThatCharged({ 'given up': 10n }));
  await reservation.settle(10n);
  t.equal((await budget.read()).spentMicroUsd, 10n);
});

test('any opener can find an open purchase by its identifier and settle it', async (t) => {
  const path = await budgetPath(t);
  const first = await openBudget(t, path);
  await (await first.reserve(prepaid(10n))).record(pendingOf('mine'));
  const second = await openBudget(t, path);
  t.equal(await second.find('other'), undefined);
  const found = (await second.find('mine')) ?? assert.fail();
  t.strictSame(found.pending, pendingOf('mine'));
  await found.reservation.settle(6n);
  t.strictSame([(await first.read()).spentMicroUsd, await first.find('mine')], [6n, undefined]);
});

test('a charge that another process settles explains the fall of the balance', async (t) => {
  const path = await budgetPath(t);
  const id = 'an account';
  const account = createHash('sha256').update(id).digest('hex');
  const buy = async (budget: FileBudget, identifier: string) => {
    const reservation = await budget.reserve({ flow: 'card', maxMicroUsd: 10n });
    await reservation.record(pendingOf(identifier, { flow: 'card', headers: { 'x-credit-account': id } }));
    return reservation;
  };
  const ended = await openFileBudget(path, {});
  await (await buy(ended, 'answered')).settle(10n, { balance: { account, balanceMicroUsd: 90n } });
  await buy(ended, 'lost');
  await ended.close();
  const budget = await openBudget(t, path);
  await budget.concludeLost(serviceThatCharged({ lost: 10n }));
  await (await buy(budget, 'next')).settle(10n, { balance: { account, balanceMicroUsd: 70n } });
  t.equal((await budget.read()).spentMicroUsd, 30n);
  await (await buy(budget, 'last')).settle(10n, { balance: { account, balanceMicroUsd: 55n } });
  t.equal((await budget.read()).spentMicroUsd, 45n, 'a fall without a purchase still counts');
});

test('only the owner can access the budget files, whatever their earlier mode', async (t) => {
  const path = await budgetPath(t);
  const budget = await openBudget(t, path);
  await budget.reserve(prepaid(1n));
  await chmod(path, 0o666);
  await budget.reserve(prepaid(1n));
  const modes = async (folder: string) =>
    Promise.all((await readdir(folder)).map(async (name) => [name, (await stat(join(folder, name))).mode & 0o777]));
  t.strictSame(await modes(dirname(path)), [
    ['budget.jsonl', 0o600],
    ['budget.jsonl.lock', 0o600],
    ['budget.jsonl.owners', 0o700],
  ]);
  const told = (await modes(`${path}.owners`)).map(([, mode]) => mode);
  t.strictSame(told, [0o600]);
});

test('a symbolic link in place of a budget file is refused, and a file of another user', async (t) => {
  for (const name of ['budget.jsonl', 'budget.jsonl.lock', 'budget.jsonl.owners']) {
    const path = await budgetPath(t);
    const target = join(dirname(path), 'target');
    await writeFile(target, 'untouched');
    await symlink(target, join(dirname(path), name));
    await assert.rejects(openFileBudget(path, {}), ForeignFileError, name);
    t.equal(await readFile(target, 'utf8'), 'untouched');
  }
  const skip = process.geteuid?.() !== 0 && 'only root may give files away';
  await t.test('of another user', { skip }, async (t) => {
    const path = await budgetPath(t);
    await writeFile(path, '');
    await chown(path, 65_534, 65_534);
    await assert.rejects(openFileBudget(path, {}), ForeignFileError);
  });
});

test('a file that is no budget, is truncated or has changed amounts is refused, not changed', async (t) => {
  for (const content of ['', 'notes', '{"speechgate":"budget","version":2}\n']) {
    const path = await budgetPath(t);
    await writeFile(path, content);
    await assert.rejects(openFileBudget(path, {}), DamagedBudgetError);
    t.equal(await readFile(path, 'utf8'), content);
  }
  const path = await budgetPath(t);
  const budget = await openFileBudget(path, {});
  await (await budget.reserve(prepaid(10n))).settle(10n);
  await budget.reserve(prepaid(5n));
  const whole = await readFile(path, 'utf8');
  const [half, zeros] = [whole.slice(0, whole.length / 2), '\0'.repeat(whole.length)];
  for (const content of [half, zeros, whole.replace('"10"', '10'), whole.replace('"5"', '"5.5"')]) {
    await writeFile(path, content);
    await assert.rejects(budget.read(), DamagedBudgetError, content);
    await assert.rejects(budget.reserve(prepaid(1n)), DamagedBudgetError, content);
  }
  await writeFile(path, whole);
  await budget.close();
});

test('an open budget notices that its file was removed or replaced', async (t) => {
  const path = await budgetPath(t);
  const budget = await openBudget(t, path, { totalMicroUsd: 10n });
  await (await budget.reserve(prepaid(10n))).settle(10n);
  await rename(path, `${path}.old`);
  await (await budget.reserve(prepaid(4n))).settle(4n);
  t.equal((await budget.read()).leftMicroUsd, 6n);
  await rename(`${path}.old`, path);
  t.equal((await budget.read()).leftMicroUsd, 0n);
  await rm(path);
  t.equal((await budget.read()).leftMicroUsd, 10n);
});

test('settled purchases and closed budgets do not make the file grow or leave files behind', async (t) => {
  const path = await budgetPath(t);
  await writeFile(`${path}.${'0'.repeat(8)}-0000-0000-0000-${'0'.repeat(12)}.new`, 'left by a killed process');
  await (await openFileBudget(path, {})).close();
  const budget = await openBudget(t, path);
  await (await budget.reserve(prepaid(77n))).record(pendingOf('kept'));
  const sizes: number[] = [];
  for (let round = 0; round < 20; round++) {
    await (await budget.reserve(prepaid(20n))).settle(11n);
    sizes.push((await stat(path)).size);
  }
  t.ok(Math.max(...sizes) - Math.min(...sizes) < 10, String(sizes));
  const files = ['', '.lock', '.owners'].map((end) => `${basename(path)}${end}`);
  t.strictSame((await readdir(dirname(path))).sort(), files);
  t.equal((await readdir(`${path}.owners`)).length, 1);
});

test('a budget stays open until it is closed, even if nothing refers to it', async (t) => {
  const path = await budgetPath(t);
  const warnings: string[] = [];
  const onWarning = ({ message }: Error) => warnings.push(message);
  process.on('warning', onWarning);
  t.teardown(() => process.off('warning', onWarning));
  await openFileBudget(path, {}).then((budget) => budget.reserve(prepaid(10n)));
  for (let turn = 0; turn < 5; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    collectGarbage();
  }
  t.strictSame(await (await openBudget(t, path)).lost(), []);
  t.strictSame(warnings, []);
});

test('the file keeps open purchases but no text or id of settled ones', async (t) => {
  const path = await budgetPath(t);
  const budget = await openBudget(t, path);
  const [finished, open] = [await budget.reserve(prepaid(10n)), await budget.reserve(prepaid(20n))];
  await finished.record(pendingOf('finished', { body: '{"text":"a secret"}', maxMicroUsd: '10' }));
  await open.record(pendingOf('open', { maxMicroUsd: '20' }));
  await finished.settle(7n);
  await budget.read();
  t.notMatch(await readFile(path, 'utf8'), /a secret|finished/);
  const other = await openBudget(t, path);
  t.equal((await other.find('open'))?.pending.body, '{"text":"Grüße"}');
  const { spentMicroUsd, reservedMicroUsd } = await other.read();
  t.strictSame([spentMicroUsd, reservedMicroUsd], [7n, 20n]);
});
