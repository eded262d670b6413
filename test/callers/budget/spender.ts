/**
 * A process that uses a budget, as the tests ask for it: `spender.ts ROLE PATH [LIMIT]`. What it says on standard output
 * is written at once, so that all of it counts when it is killed.
 */
import { randomBytes } from 'node:crypto';
import { rmSync, writeFileSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { openFileBudget } from '../../../src/callers/budget/file-budget.ts';
import type { Reservation } from '../../../src/callers/client/budget.ts';
import { OverCapError } from '../../../src/callers/client/errors.ts';
import { FileLock } from '../../../src/lib/file-lock.ts';
import { chargeOf, MAX_MICRO_USD, pendingOf, prepaid } from './support.ts';

const [role = '', path = '', limit] = process.argv.slice(2);
const say = (line: string) => writeSync(1, `${line}\n`);
const roles: Readonly<Record<string, () => Promise<void>>> = { spend, reserve, holdLock, fillDisk };
await roles[role]?.();

/** Buys, several at a time, until nothing is left. */
async function spend(): Promise<void> {
  const budget = await openFileBudget(path, { totalMicroUsd: BigInt(limit ?? 0) });
  say('spends');
  await Promise.all(Array.from({ length: 4 }, buyAll));
  say('has spent');
  async function buyAll(): Promise<void> {
    for (;;) {
      const identifier = randomBytes(8).toString('hex');
      const reservation = await budget.reserve(prepaid(MAX_MICRO_USD)).catch((error) => {
        if (!(error instanceof OverCapError)) throw error;
        return undefined;
      });
      if (!reservation) return;
      await reservation.record(pendingOf(identifier, { body: 'x'.repeat(1000) }));
      say(`sent ${identifier}`);
      await reservation.settle(chargeOf(identifier));
    }
  }
}

/** Leaves one purchase with a record and one without. */
async function reserve(): Promise<void> {
  const budget = await openFileBudget(path, {});
  await budget.reserve(prepaid(5n));
  await (await budget.reserve(prepaid(7n))).record(pendingOf('recorded'));
  say('reserved');
  process.stdin.resume();
}

async function holdLock(): Promise<void> {
  const lock = await FileLock.open(`${path}.lock`);
  await lock.acquire();
  say('holds');
  process.stdin.once('data', () => lock.release());
}

/** Records purchases until the disk is full, and settles them once it is not any more. */
async function fillDisk(): Promise<void> {
  const ballast = join(dirname(path), 'ballast');
  writeFileSync(ballast, Buffer.alloc(64 * 1024));
  const budget = await openFileBudget(path, {});
  let failure: { code?: string } | undefined;
  const reserved: Reservation[] = [];
  while (!failure) {
    await budget.reserve(prepaid(1n)).then(
      (reservation) => void reserved.push(reservation),
      (error) => (failure = error),
    );
  }
  const full = await budget.read();
  await Promise.all(reserved.map((reservation) => reservation.settle(1n)));
  const unwritten = await budget.read();
  rmSync(ballast);
  const freed = await budget.read();
  say(
    JSON.stringify({
      code: failure.code,
      isKept: full.reservedMicroUsd === BigInt(reserved.length),
      isTold: unwritten.spentMicroUsd + unwritten.reservedMicroUsd === BigInt(reserved.length),
      isFreed: freed.spentMicroUsd === BigInt(reserved.length) && freed.reservedMicroUsd === 0n,
    }),
  );
}
