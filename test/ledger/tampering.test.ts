import assert from 'node:assert/strict';
import { type Test, test } from 'tap';
import type { Database } from '../../src/db/database.ts';
import { newestSealable, type Seal, sealUpTo } from '../../src/ledger/seal.ts';
import { auditPayments } from '../../src/operators/audit/chain-payments.ts';
import { auditPurchases } from '../../src/operators/audit/processor-purchases.ts';
import { Processor } from '../../src/payments/top-up/processor.ts';
import { openPayments } from '../../src/payments/x402/resolver.ts';
import { invariants } from '../support/audit-rules.ts';
import { testChain } from '../support/chain.ts';
import { type Populated, populate } from '../support/populated.ts';
import { brokenRules, rolledBack } from '../support/rolled-back.ts';
import { type Fate, TAMPERINGS, type Tampering } from '../support/tamperings.ts';
import { unguarded } from '../support/unguarded.ts';

const { chain, skip } = await testChain();

test('tampering with the ledger is refused by the database or found by the audit', { skip }, async (t) => {
  const books = await populate(t, chain);
  const outside = outsideOf(t, books);
  const { db } = books.gateway;
  t.strictSame(await brokenRules(db), []);
  t.strictSame(await outside(db), []);
  const upTo = await newestSealable(db, 0);
  assert.ok(upTo);
  const seal = await sealUpTo(db, upTo);
  const missed = { guarded: 0, unguarded: 0 };
  for (const tampering of TAMPERINGS) {
    await t.test(tampering.name, async (t) => {
      const guarded = await fate(tampering, books, outside, seal, (trx, work) => work(trx));
      const free = await fate(tampering, books, outside, seal, unguarded);
      t.comment(`${tampering.name}: ${guarded.join(': ')}; without triggers ${free.join(': ')}`);
      t.strictSame([guarded[0], free[0]], tampering.fates);
      if (guarded[0] === 'unseen') missed.guarded++;
      if (free[0] === 'unseen') missed.unguarded++;
    });
  }
  t.comment(
    `of ${TAMPERINGS.length} tamperings, ${missed.guarded} can't be seen; without triggers, ${missed.unguarded}`,
  );
  t.ok(TAMPERINGS.length >= 34);
  t.equal(missed.guarded, 1);
});

async function firstBroken(trx: Database): Promise<string | undefined> {
  for (const { rule, breaches } of invariants) {
    if ((await breaches.execute(trx)).rows.length > 0) return rule;
  }
  return undefined;
}

type Outside = (db: Database) => Promise<string[]>;

function outsideOf(t: Test, { gateway }: Populated): Outside {
  const { card, x402 } = gateway.config;
  assert.ok(card && x402?.rpcUrls);
  const processor = new Processor(card.secretKey, card.apiBase);
  const { chain } = openPayments(gateway.db, x402.asset, x402.rpcUrls);
  t.teardown(() => chain.close());
  return async (db) => {
    const found = [];
    for (const { findings, unanswered } of [
      await auditPurchases(db, processor, () => {}),
      await auditPayments(db, chain, x402.asset, () => {}),
    ]) {
      assert.deepEqual(unanswered, []);
      found.push(...findings.map(({ rule }) => rule));
    }
    return found;
  };
}

async function fate(
  { statements }: Tampering,
  books: Populated,
  outside: Outside,
  seal: Seal,
  as: (db: Database, work: (trx: Database) => Promise<void>) => Promise<void>,
): Promise<[fate: Fate, by?: string]> {
  try {
    return await rolledBack(books.gateway.db, async (trx) => {
      await as(trx, async () => {
        for (const statement of statements(books)) await statement.execute(trx);
      });
      const rule = await firstBroken(trx);
      if (rule) return ['audit', rule];
      const [external] = await outside(trx);
      if (external) return ['external', external];
      return (await sealUpTo(trx, seal.upTo)).hash === seal.hash ? ['unseen'] : ['seal'];
    });
  } catch (error) {
    return ['forbidden', (error as Error).message];
  }
}
