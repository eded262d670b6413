import assert from 'node:assert/strict';
import { chmod, chown, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { mock } from 'node:test';
import { test } from 'tap';
import { DamagedBudgetError } from '../../src/budget/budget-file.ts';
import { openFileBudget } from '../../src/budget/file-budget.ts';
import { watchLost } from '../../src/budget/watch-lost.ts';
import { keptSpeech } from '../../src/cli/caller/kept-purchases.ts';
import { OverCapError } from '../../src/client/errors.ts';
import { ForeignFileError } from '../../src/lib/private-files.ts';
import { budgetPath, openBudget, pendingOf, prepaid, serviceThatCharged } from './support.ts';

const DAY_MS = 86_400_000;

const overCap = (scope: string, leftMicroUsd: bigint) => (error: unknown) => {
  assert.ok(error instanceof OverCapError, String(error));
  assert.deepEqual([error.scope, error.leftMicroUsd], [scope, leftMicroUsd]);
  return true;
};

test('what is reserved counts until it is settled, and then what it did cost', async (t) => {
  const budget = await openBudget(t, await budgetPath(t), { totalMicroUsd: 1000n });
  const reservation = await budget.reserve(prepaid(600n));
  assert.deepEqual(await budget.read(), {
    spentTodayMicroUsd: 0n,
    spentMicroUsd: 0n,
    reservedMicroUsd: 600n,
    unconfirmedTodayMicroUsd: 0n,
    unconfirmedMicroUsd: 0n,
    leftMicroUsd: 400n,
  });
  await assert.rejects(budget.reserve(prepaid(401n)), overCap('total', 400n));
  await reservation.settle(198n);
  assert.deepEqual(await budget.read(), {
    spentTodayMicroUsd: 198n,
    spentMicroUsd: 198n,
    reservedMicroUsd: 0n,
    unconfirmedTodayMicroUsd: 0n,
    unconfirmedMicroUsd: 0n,
    leftMicroUsd: 802n,
  });
  await (await budget.reserve(prepaid(802n))).settle(0n);
  assert.equal((await budget.read()).leftMicroUsd, 802n);
});

test('each limit refuses what is one micro-USD above it, and takes what reaches it', async (t) => {
  const path = await budgetPath(t);
  const perCall = await openBudget(t, path, { perCallMicroUsd: 100n });
  await assert.rejects(perCall.reserve(prepaid(101n)), overCap('call', 100n));
  await (await perCall.reserve(prepaid(100n))).settle(100n);
  assert.equal((await perCall.read()).leftMicroUsd, null, 'nothing limits the sum');
  const perDay = await openBudget(t, path, { perDayMicroUsd: 150n, totalMicroUsd: 1000n });
  await assert.rejects(perDay.reserve(prepaid(51n)), overCap('day', 50n));
  await (await perDay.reserve(prepaid(50n))).settle(50n);
  assert.equal((await perDay.read()).leftMicroUsd, 0n);
  const lower = await openBudget(t, path, { totalMicroUsd: 40n });
  assert.equal((await lower.read()).leftMicroUsd, 0n, 'a limit below what is spent leaves nothing');
  await assert.rejects(lower.reserve(prepaid(1n)), overCap('total', 0n));
  await assert.rejects(lower.reserve(prepaid(0n)), overCap('total', 0n));
  const huge = 2n ** 200n;
  const unlimited = await openBudget(t, path);
  await (await unlimited.reserve(prepaid(huge))).settle(huge);
  assert.equal((await unlimited.read()).spentMicroUsd, huge + 150n);
});

test('amounts below zero are refused', async (t) => {
  const budget = await openBudget(t, await budgetPath(t), { totalMicroUsd: 10n });
  await assert.rejects(budget.reserve(prepaid(-1n)), RangeError);
  const reservation = await budget.reserve(prepaid(10n));
  await assert.rejects(reservation.settle(-1n), RangeError);
  await assert.rejects(reservation.record(pendingOf('a', { maxMicroUsd: '11' })), RangeError);
  assert.equal((await budget.read()).reservedMicroUsd, 10n);
});

test('a purchase counts on the day on which it was reserved, by UTC', async (t) => {
  const path = await budgetPath(t);
  let now = Date.parse('2026-11-23T23:59:59.999Z');
  const budget = await openBudget(t, path, { perDayMicroUsd: 100n }, () => now);
  const late = await budget.reserve(prepaid(100n));
  await assert.rejects(budget.reserve(prepaid(1n)), overCap('day', 0n));
  now += 1;
  const early = await budget.reserve(prepaid(70n));
  await late.settle(90n);
  assert.deepEqual(await budget.read(), {
    spentTodayMicroUsd: 0n,
    spentMicroUsd: 90n,
    reservedMicroUsd: 70n,
    unconfirmedTodayMicroUsd: 0n,
    unconfirmedMicroUsd: 0n,
    leftMicroUsd: 30n,
  });
  await early.settle(70n);
  now -= 1;
  await assert.rejects(budget.reserve(prepaid(11n)), overCap('day', 10n));
  now += 400 * DAY_MS;
  assert.equal((await budget.read()).leftMicroUsd, 100n);
});

test('who opens the file later finds what others have spent and reserved', async (t) => {
  const path = await budgetPath(t);
  const first = await openBudget(t, path, { totalMicroUsd: 100n });
  const reservation = await first.reserve(prepaid(30n));
  const second = await openBudget(t, path, { totalMicroUsd: 100n });
  await assert.rejects(second.reserve(prepaid(71n)), overCap('total', 70n));
  await reservation.settle(20n);
  await second.reserve(prepaid(80n));
  assert.equal((await first.read()).leftMicroUsd, 0n);
});

test('what is settled twice counts once, and a settled purchase is not recorded any more', async (t) => {
  const budget = await openBudget(t, await budgetPath(t));
  const reservation = await budget.reserve(prepaid(5n));
  await Promise.all([reservation.settle(4n), reservation.settle(4n)]);
  await reservation.settle(4n);
  assert.equal((await budget.read()).spentMicroUsd, 4n);
  await assert.rejects(reservation.record(pendingOf('late')), /Nothing is reserved/);
});

test('hundreds of reservations at the same moment, by several openers, take no more than there is', async (t) => {
  const path = await budgetPath(t);
  const limits = { perDayMicroUsd: 1000n, totalMicroUsd: 1000n };
  const budgets = await Promise.all([1, 2, 3].map(() => openBudget(t, path, limits)));
  const attempts = budgets.flatMap((budget) => Array.from({ length: 100 }, () => budget.reserve(prepaid(7n))));
  const ends = await Promise.allSettled(attempts);
  const reserved = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
  assert.equal(reserved.length, 142);
  for (const end of ends) if (end.status === 'rejected') assert.ok(end.reason instanceof OverCapError);
  await Promise.all(reserved.map((reservation) => reservation.settle(3n)));
  assert.equal((await openBudget(t, path).then((budget) => budget.read())).spentMicroUsd, 426n);
});

test('what a closed budget left open is lost: settled at nothing, as the service tells, or not yet', async (t) => {
  const path = await budgetPath(t);
  const ended = await openFileBudget(path, {});
  await ended.reserve(prepaid(10n));
  const [charged, restored, unknown] = await Promise.all([1, 2, 3].map(() => ended.reserve(prepaid(10n))));
  await charged?.record(pendingOf('charged'));
  await restored?.record(pendingOf('restored'));
  await unknown?.record(pendingOf('unknown'));
  const living = await openBudget(t, path, { totalMicroUsd: 40n });
  assert.deepEqual(await living.lost(), []);
  await ended.close();
  await assert.rejects(ended.reserve(prepaid(1n)), /closed/);
  const lost = await living.lost();
  assert.deepEqual(lost.map(({ pending }) => pending?.identifier).sort(), [
    'charged',
    'restored',
    'unknown',
    undefined,
  ]);
  assert.deepEqual(
    lost.find(({ pending }) => pending?.identifier === 'charged')?.pending,
    pendingOf('charged'),
    'all it takes to ask again',
  );
  await assert.rejects(living.reserve(prepaid(1n)), overCap('total', 0n));
  await living.concludeLost(serviceThatCharged({ charged: 8n, restored: 0n }));
  assert.deepEqual(await living.read(), {
    spentTodayMicroUsd: 8n,
    spentMicroUsd: 8n,
    reservedMicroUsd: 10n,
    unconfirmedTodayMicroUsd: 0n,
    unconfirmedMicroUsd: 0n,
    leftMicroUsd: 22n,
  });
  await living.concludeLost(serviceThatCharged({ unknown: 10n }));
  assert.deepEqual((await living.read()).spentMicroUsd, 18n);
  assert.deepEqual(await living.lost(), []);
});

test('a service that cannot be asked about one lost purchase is asked about the others', async (t) => {
  const path = await budgetPath(t);
  const ended = await openFileBudget(path, {});
  for (const identifier of ['first', 'second']) {
    await (await ended.reserve(prepaid(10n))).record(pendingOf(identifier));
  }
  await ended.close();
  const living = await openBudget(t, path);
  const failure = new Error('connection refused');
  const service = {
    conclude: async ({ identifier }: { identifier: string }) => {
      if (identifier === 'first') throw failure;
      return { chargedMicroUsd: 3n, speech: null };
    },
  };
  await assert.rejects(living.concludeLost(service), failure);
  assert.deepEqual(await living.read(), {
    spentTodayMicroUsd: 3n,
    spentMicroUsd: 3n,
    reservedMicroUsd: 10n,
    unconfirmedTodayMicroUsd: 0n,
    unconfirmedMicroUsd: 0n,
    leftMicroUsd: null,
  });
});

test('the audio of a lost purchase is not kept waiting', async (t) => {
  const path = await budgetPath(t);
  const ended = await openFileBudget(path, {});
  await (await ended.reserve(prepaid(10n))).record(pendingOf('heard'));
  await ended.close();
  const reasons: unknown[] = [];
  const audio = new ReadableStream<Uint8Array>({
    cancel(reason) {
      reasons.push(reason);
    },
  });
  const living = await openBudget(t, path);
  await living.concludeLost({ conclude: async () => ({ chargedMicroUsd: 2n, speech: { audio } }) });
  assert.equal(reasons.length, 1);
});

test('a lost purchase whose audio can be had is kept before it is settled, and is not settled where it cannot be', async (t) => {
  const path = await budgetPath(t);
  const ended = await openFileBudget(path, {});
  await (await ended.reserve(prepaid(10n))).record(pendingOf('heard'));
  await ended.close();
  const living = await openBudget(t, path);
  const service = { conclude: async () => ({ chargedMicroUsd: 2n, speech: { audio: new ReadableStream() } }) };
  const full = { keep: () => Promise.reject(new Error('The disk is full.')) };
  await assert.rejects(living.concludeLost(service, full), /full/);
  assert.equal((await living.read()).reservedMicroUsd, 10n);
  const kept = keptSpeech(dirname(path));
  await living.concludeLost(service, kept);
  assert.deepEqual(await kept.find('heard'), pendingOf('heard'));
  assert.equal((await living.read()).spentMicroUsd, 2n);
});

test('one look for what is lost ends before the next begins', async (t) => {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  let looks = 0;
  let end = () => {};
  const concludeLost = () => {
    looks += 1;
    return new Promise<void>((resolve) => {
      end = resolve;
    });
  };
  t.teardown(watchLost({ concludeLost }, serviceThatCharged({})));
  mock.timers.tick(60_000);
  assert.equal(looks, 1);
  end();
  await new Promise(setImmediate);
  mock.timers.tick(60_000);
  assert.equal(looks, 2);
});

test('a purchase of a living process is given up a minute after the service took it no longer', async (t) => {
  const path = await budgetPath(t);
  const expiresAt = Math.floor(Date.now() / 1000);
  let now = expiresAt * 1000;
  const budget = await openBudget(t, path, {}, () => now);
  const reservation = await budget.reserve(prepaid(10n));
  await reservation.record(pendingOf('given up', { expiresAt }));
  now += 60_000;
  assert.deepEqual(await budget.lost(), []);
  now += 1;
  await budget.concludeLost(serviceThatCharged({ 'given up': 10n }));
  await reservation.settle(10n);
  assert.equal((await budget.read()).spentMicroUsd, 10n);
});

test('an open purchase is found by its identifier, and settled by whoever asked', async (t) => {
  const path = await budgetPath(t);
  const first = await openBudget(t, path);
  await (await first.reserve(prepaid(10n))).record(pendingOf('mine'));
  const second = await openBudget(t, path);
  assert.equal(await second.find('other'), undefined);
  const found = (await second.find('mine')) ?? assert.fail();
  assert.deepEqual(found.pending, pendingOf('mine'));
  await found.reservation.settle(6n);
  assert.equal((await first.read()).spentMicroUsd, 6n);
  assert.equal(await first.find('mine'), undefined);
});

test('the files are their owner’s alone, whatever they were', async (t) => {
  const path = await budgetPath(t);
  await writeFile(path, '');
  await chmod(path, 0o666);
  const budget = await openBudget(t, path);
  await budget.reserve(prepaid(1n));
  const modes = async (folder: string) =>
    Promise.all((await readdir(folder)).map(async (name) => [name, (await stat(join(folder, name))).mode & 0o777]));
  assert.deepEqual(await modes(dirname(path)), [
    ['budget.jsonl', 0o600],
    ['budget.jsonl.lock', 0o600],
    ['budget.jsonl.owners', 0o700],
  ]);
  assert.deepEqual(
    (await modes(`${path}.owners`)).map(([, mode]) => mode),
    [0o600],
  );
});

for (const name of ['budget.jsonl', 'budget.jsonl.lock', 'budget.jsonl.owners']) {
  test(`a link in the place of ${name} is not followed`, async (t) => {
    const path = await budgetPath(t);
    const target = join(dirname(path), 'target');
    await writeFile(target, 'untouched');
    await symlink(target, join(dirname(path), name));
    await assert.rejects(openFileBudget(path, {}), ForeignFileError);
    assert.equal(await readFile(target, 'utf8'), 'untouched');
  });
}

test('a file of somebody else is refused', {
  skip: process.geteuid?.() !== 0 && 'only root may give files away',
}, async (t) => {
  const path = await budgetPath(t);
  await writeFile(path, '');
  await chown(path, 65_534, 65_534);
  await assert.rejects(openFileBudget(path, {}), ForeignFileError);
});

test('what is no budget is refused and left as it is', async (t) => {
  for (const content of ['notes', 'notes\n', '{"speechgate":"budget","version":2}\n', '[]\n[]\n']) {
    const path = await budgetPath(t);
    await writeFile(path, content);
    await assert.rejects(openFileBudget(path, {}), DamagedBudgetError);
    assert.equal(await readFile(path, 'utf8'), content);
  }
});

test('a line that was changed is an error, unless it is the last one, which may have been written in part', async (t) => {
  const path = await budgetPath(t);
  const budget = await openFileBudget(path, {});
  await (await budget.reserve(prepaid(10n))).settle(10n);
  await budget.reserve(prepaid(5n));
  await budget.close();
  const lines = (await readFile(path, 'utf8')).split('\n');
  assert.equal(lines.length, 5);
  const damage = async (index: number, line: string) => {
    await writeFile(path, lines.map((each, at) => (at === index ? line : each)).join('\n'));
    return openFileBudget(path, {});
  };
  await assert.rejects(damage(1, '\0'.repeat(40)), DamagedBudgetError);
  await assert.rejects(damage(2, '{}'), DamagedBudgetError);
  await assert.rejects(damage(2, ''), DamagedBudgetError);
  await assert.rejects(damage(2, (lines[2] ?? '').replace('"10"', '10')), DamagedBudgetError);
  await assert.rejects(damage(2, lines[1] ?? ''), DamagedBudgetError, 'reserved twice');
  await assert.rejects(damage(3, '[{"kind":"borrowed"}]'), DamagedBudgetError, 'of a later version');
  const rest = await damage(3, '\0'.repeat(40));
  t.teardown(() => rest.close());
  assert.deepEqual(await rest.read(), {
    spentTodayMicroUsd: 10n,
    spentMicroUsd: 10n,
    reservedMicroUsd: 0n,
    unconfirmedTodayMicroUsd: 0n,
    unconfirmedMicroUsd: 0n,
    leftMicroUsd: null,
  });
});

test('a file that was removed or exchanged is noticed by who has it open', async (t) => {
  const path = await budgetPath(t);
  const budget = await openBudget(t, path, { totalMicroUsd: 10n });
  await (await budget.reserve(prepaid(10n))).settle(10n);
  await rename(path, `${path}.old`);
  await (await budget.reserve(prepaid(4n))).settle(4n);
  assert.equal((await budget.read()).leftMicroUsd, 6n);
  await rename(`${path}.old`, path);
  assert.equal((await budget.read()).leftMicroUsd, 0n);
  await rm(path);
  assert.equal((await budget.read()).leftMicroUsd, 10n);
});

test('a file that has grown by settled purchases is written anew, and says the same', async (t) => {
  const path = await budgetPath(t);
  let now = Date.parse('2026-11-01T12:00:00Z');
  const budget = await openBudget(t, path, { perDayMicroUsd: 100_000n }, () => now);
  const other = await openBudget(t, path, {}, () => now);
  const kept = await budget.reserve(prepaid(77n));
  await kept.record(pendingOf('kept'));
  await writeFile(`${path}.${'0'.repeat(8)}-0000-0000-0000-${'0'.repeat(12)}.new`, 'left by a killed process');
  let largest = 0;
  for (let round = 0; round < 300; round++) {
    now += DAY_MS / 100;
    const reservation = await (round % 2 ? budget : other).reserve(prepaid(20n));
    await reservation.settle(11n);
    largest = Math.max(largest, (await stat(path)).size);
  }
  const { size } = await stat(path);
  assert.ok(largest > 60_000 && size < largest, `${size} of at most ${largest} bytes`);
  const again = await openBudget(t, path, {}, () => now);
  for (const each of [budget, other, again]) {
    const { spentMicroUsd, spentTodayMicroUsd, reservedMicroUsd } = await each.read();
    assert.deepEqual([spentMicroUsd, reservedMicroUsd], [3300n, 77n]);
    assert.equal(spentTodayMicroUsd % 11n, 0n);
  }
  assert.deepEqual((await again.find('kept'))?.pending, pendingOf('kept'));
  assert.deepEqual(
    (await readdir(dirname(path))).sort(),
    ['', '.lock', '.owners'].map((end) => `${basename(path)}${end}`),
    'nothing is left beside it',
  );
});

test('the files of those that have closed the budget are removed', async (t) => {
  const path = await budgetPath(t);
  for (let round = 0; round < 3; round++) await (await openFileBudget(path, {})).close();
  await openBudget(t, path);
  assert.equal((await readdir(`${path}.owners`)).length, 1);
});

test('a finished purchase leaves no text and no id in the file, and an open one stays', async (t) => {
  const path = await budgetPath(t);
  const budget = await openBudget(t, path);
  const [finished, open] = [await budget.reserve(prepaid(10n)), await budget.reserve(prepaid(20n))];
  await finished.record(pendingOf('finished', { body: '{"text":"a secret"}', maxMicroUsd: '10' }));
  await open.record(pendingOf('open', { maxMicroUsd: '20' }));
  await finished.settle(7n);
  await budget.read();
  const text = await readFile(path, 'utf8');
  assert.doesNotMatch(text, /a secret|finished/);
  const other = await openBudget(t, path);
  assert.equal((await other.find('open'))?.pending.body, '{"text":"Grüße"}');
  const { spentMicroUsd, reservedMicroUsd } = await other.read();
  assert.deepEqual([spentMicroUsd, reservedMicroUsd], [7n, 20n]);
});
