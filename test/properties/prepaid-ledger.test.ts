import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { findWallet } from '../../src/ledger/accounts.ts';
import { audit } from '../../src/ledger/audit.ts';
import { captureHold, voidExpiredHolds, voidHold } from '../../src/ledger/hold.ts';
import { testDatabase } from '../support/database.ts';
import { holdOnWallet } from '../support/holds.ts';
import { bookDeposit } from '../support/prepaid.ts';

/** What the owner of a hold does with it. A capture is repeated when its answer was lost. */
const ENDS = ['capture', 'capture twice', 'void', 'capture and void', 'nothing'] as const;

const spend = fc.record({
  nonce: fc.nat(20),
  amount: fc.bigInt(1n, 120n),
  isWithinMaximum: fc.nat(9).map((n) => n > 0),
  leaseMs: fc.nat(8),
  startMs: fc.nat(20),
  pauseMs: fc.nat(10),
  end: fc.constantFrom(...ENDS),
});

test('each hold ends once when leases expire during captures and voids', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 12 });
  t.teardown(() => db.destroy());
  const deposits = [700n, 300n];

  await fc.assert(
    fc.asyncProperty(fc.array(spend, { minLength: 20, maxLength: 40 }), async (spends) => {
      const address = `0x${randomBytes(20).toString('hex')}`;
      const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
      await bookDeposit(db, address, deposits[0] as bigint);

      const run = async ({
        nonce,
        amount,
        isWithinMaximum,
        leaseMs,
        startMs,
        pauseMs,
        end,
      }: (typeof spends)[number]) => {
        await sleep(startMs);
        const terms = { address, nonce: String(nonce), expiry, amountMicroUsd: amount, isWithinMaximum };
        const result = await holdOnWallet(db, terms, leaseMs / 1000);
        if (result.outcome !== 'placed') return { nonce, outcome: result.outcome };
        const { hold } = result;
        assert.ok(isWithinMaximum && hold.balanceMicroUsd >= 0n);
        await sleep(pauseMs);
        const captures = end === 'void' || end === 'nothing' ? [] : [captureHold(db, hold)];
        if (end === 'capture twice') captures.push(captureHold(db, hold));
        const voids = end.endsWith('void') ? [voidHold(db, hold)] : [];
        return {
          nonce,
          outcome: 'placed',
          hold,
          captures: await Promise.all(captures),
          voids: await Promise.all(voids),
        };
      };
      let isOver = false;
      const reconciler = async () => {
        while (!isOver) await voidExpiredHolds(db);
      };
      const reconcilers = Promise.all([reconciler(), reconciler()]);
      const ends = Promise.all(spends.map(run));
      await bookDeposit(db, address, deposits[1] as bigint);
      const ended = await ends.finally(() => {
        isOver = true;
      });
      await reconcilers;
      const pending = () => db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute();
      while ((await pending()).length > 0) await voidExpiredHolds(db);

      const rows = await db
        .selectFrom('transfer')
        .innerJoin('account', 'account.id', 'transfer.debit_account_id')
        .select(['transfer.id', 'state', 'reference', 'amount_micro_usd'])
        .where('address', '=', address)
        .execute();
      const held = ended.filter((one) => one.outcome === 'placed');
      assert.deepEqual(
        rows.map(({ reference }) => reference).sort(),
        [...new Set(held.map(({ nonce }) => String(nonce)))].sort(),
        'one debit for each nonce',
      );
      assert.equal(held.length, rows.length);
      for (const { hold, captures = [], voids = [] } of held) {
        const state = rows.find(({ id }) => id === hold?.id)?.state;
        if (captures.length > 0) assert.deepEqual([...new Set(captures)], [state === 'posted'], 'captures agree');
        else assert.equal(state, 'voided');
        for (const { isVoided, isCharged } of voids) {
          if (isVoided) assert.equal(state, 'voided');
          assert.equal(isCharged, state === 'posted', 'a void tells what became of the hold');
        }
      }
      for (const { nonce, outcome } of ended) {
        if (outcome === 'nonce_spent') assert.ok(rows.some(({ reference }) => reference === String(nonce)));
      }
      const posted = rows.filter(({ state }) => state === 'posted');
      const charged = posted.reduce((sum, { amount_micro_usd }) => sum + amount_micro_usd, 0n);
      assert.equal(await findWallet(db, address), 1000n - charged);
      assert.deepEqual(await audit(db), []);
    }),
    { numRuns: 25, endOnFailure: true },
  );
});
