import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import {
  deadProcesses,
  forgetProcess,
  registerProcess,
  undeliveredCharges,
  writeCheckpoint,
} from '../../src/ledger/gateway-process.ts';
import { captureHold, voidHold } from '../../src/ledger/hold.ts';
import { placeWalletHold } from '../../src/ledger/wallet-holds.ts';
import { findWallet } from '../../src/ledger/wallets.ts';
import { testDatabase } from '../support/database.ts';
import { bookDeposit } from '../support/prepaid.ts';

const PAYER = `0x${'a'.repeat(40)}`;
const FUNDS = 1_000n;
const AMOUNT = 198n;

test('what a process places that was taken for dead meanwhile is not charged, also when it is forgotten', async (t) => {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 4 });
  t.teardown(() => db.destroy());
  await bookDeposit(db, PAYER, FUNDS);
  const { id: processId } = await registerProcess(db);
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
  const place = async (nonce: string) => {
    const spend = { address: PAYER, nonce, expiry, amountMicroUsd: AMOUNT, isPermitted: true, processId };
    const placed = await placeWalletHold(db, spend, 60);
    assert.ok(placed.outcome === 'held');
    return placed.hold;
  };
  assert.equal(await captureHold(db, await place('alive')), true);

  const before = await place('before it is dead');
  await sql`update gateway_process set is_dead = true where id = ${processId}`.execute(db);
  const after = await place('when it is dead');
  for (const hold of [before, after]) {
    assert.equal(await captureHold(db, hold), false);
    assert.equal((await deadProcesses(db))[0]?.isHolding, true);
    assert.ok((await voidHold(db, hold)) !== undefined);
  }

  await forgetProcess(db, processId);
  const forgotten = await place('when it is forgotten');
  assert.equal(await captureHold(db, forgotten), false);
  assert.ok((await voidHold(db, forgotten)) !== undefined);
  assert.equal(await findWallet(db, PAYER), FUNDS - AMOUNT);
  assert.deepEqual(await audit(db), []);
});

test('who looks for what a process has not delivered when others have forgotten it finds nothing', async (t) => {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 4 });
  t.teardown(() => db.destroy());
  await bookDeposit(db, PAYER, FUNDS);
  const { id: processId, firstHoldId } = await registerProcess(db);
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
  const spend = { address: PAYER, nonce: 'told', expiry, amountMicroUsd: AMOUNT, isPermitted: true, processId };
  const placed = await placeWalletHold(db, spend, 60);
  assert.ok(placed.outcome === 'held' && (await captureHold(db, placed.hold)));
  const told = { finishedBelow: firstHoldId, unfinished: [], finished: [placed.hold.id] };
  assert.equal(await writeCheckpoint(db, processId, told), true);
  await sql`update gateway_process set is_dead = true where id = ${processId}`.execute(db);
  const [dead] = await deadProcesses(db);
  assert.ok(dead);
  assert.deepEqual(await undeliveredCharges(db, dead), []);
  await forgetProcess(db, processId);
  assert.deepEqual(await undeliveredCharges(db, dead), []);
});
