import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { type Check, type DoctorContext, ok } from '../../../src/operators/doctor/check.ts';
import { judgeVersion } from '../../../src/operators/doctor/database-checks.ts';
import { type Checked, runChecks } from '../../../src/operators/doctor/run-checks.ts';
import { judgeRoom } from '../../../src/operators/doctor/storage-checks.ts';

async function told(checks: readonly Check[], left: readonly string[] = []): Promise<Checked[]> {
  const all: Checked[] = [];
  for await (const checked of runChecks(checks, {} as DoctorContext, new Set(left))) all.push(checked);
  return all;
}

test('checks are reported in order, and skipped checks do not run', async (t) => {
  const enough = new AbortController();
  const late = async () => {
    await sleep(60_000, undefined, { signal: enough.signal }).catch(() => undefined);
    return ok('late');
  };
  const early = async () => {
    enough.abort();
    return ok('early');
  };
  const never = async () => assert.fail('it ran');
  const checks = [
    { name: 'one', run: late },
    { name: 'two', run: never },
    { name: 'three', about: 'it', run: early },
  ];
  t.strictSame(await told(checks, ['two']), [
    { name: 'one', state: 'ok', message: 'late' },
    { name: 'two', state: 'skipped', message: 'Not checked. --skip leaves this check out.' },
    { name: 'three', about: 'it', state: 'ok', message: 'early' },
  ]);
});

test('a check that hangs or throws is a fault and affects no other check', async (t) => {
  const [hung, thrown, empty, fine] = await told([
    { name: 'hangs', limitMs: 10, run: () => new Promise(() => {}) },
    { name: 'throws', run: async () => Promise.reject(new Error('relation "x" does not exist')) },
    { name: 'throws nothing', run: async () => Promise.reject(undefined) },
    { name: 'fine', run: async () => ok('fine') },
  ]);
  t.equal(hung?.state, 'fault');
  t.match(hung?.message ?? '', /within 0\.01 s/);
  t.equal(thrown?.state, 'fault');
  t.match(thrown?.message ?? '', /relation "x" does not exist/);
  t.ok(thrown?.fix && hung?.fix);
  t.strictSame([empty?.state, fine?.state], ['fault', 'ok']);
});

test('a check that the database refuses a connection gets the fix of that error', async (t) => {
  const full = Object.assign(new Error('too many connections for role "app"'), { code: '53300' });
  const context = { once: async () => [] } as unknown as DoctorContext;
  const checks: Check[] = [{ name: 'clock', needs: 'database', run: async () => Promise.reject(full) }];
  for await (const { fix } of runChecks(checks, context, new Set()))
    t.match(fix, /^Close connections of other programs/);
});

test('PostgreSQL 15 and later is supported and tested up to 18', async (t) => {
  const states = [140_019, 150_000, 180_004, 190_001].map((version) => judgeVersion(version).state);
  t.strictSame(states, ['fault', 'ok', 'ok', 'warning']);
  t.match(judgeVersion(140_019).message, /PostgreSQL 14\.19/);
});

test('a disk needs 2 GiB and a twentieth of its size, and fails below 256 MiB', async (t) => {
  const GIB = 1024 ** 3;
  const states = [
    [0.2, 100],
    [1, 4],
    [4, 100],
    [6, 100],
    [2.5, 10],
  ].map(([free = 0, total = 0]) => judgeRoom({ freeBytes: free * GIB, totalBytes: total * GIB }).state);
  t.strictSame(states, ['fault', 'warning', 'warning', 'ok', 'ok']);
});
