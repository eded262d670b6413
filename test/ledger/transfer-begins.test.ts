import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { contra } from '../../src/ledger/contra.ts';
import { testDatabase } from '../support/database.ts';

/** A hold of 11 characters at 18 USD for a million. */
const HOLD = {
  kind: 'charge',
  state: 'pending',
  debit_account_id: randomUUID(),
  credit_account_id: contra.cardRevenue,
  amount_micro_usd: 198,
  characters: 11,
  rate_pico_usd: 18_000_000,
};

const KIND = /of a kind that the ledger knows/;
const NOW = /a charge begins as a hold, and a transfer now/;
const LEASE = /the lease of a hold ends within a day/;
const PRICE = /a charge is the price of its characters/;
const ended = { state: 'posted', ended_at: sql`now()` };
const spend = { kind: 'spend', reference: 'one', credit_account_id: contra.prepaidRevenue };

const CASES: [string, Record<string, unknown>, RegExp | undefined][] = [
  ['a hold', {}, undefined],
  ['a hold whose lease ends in an hour', { lease_until: sql`now() + interval '1 hour'` }, undefined],
  ['a hold of a spend', spend, undefined],
  ['a charge of an older release', { characters: null, rate_pico_usd: null }, undefined],
  ['a charge at a rate that is gone', { rate_pico_usd: null, amount_micro_usd: 7 }, undefined],
  ['a price that is rounded up', { characters: 1, rate_pico_usd: 1, amount_micro_usd: 1 }, undefined],
  ['a price that is not rounded up', { characters: 11, rate_pico_usd: 18_000_001, amount_micro_usd: 198 }, PRICE],
  ['a price that is too high', { amount_micro_usd: 199 }, PRICE],
  ['a price of no characters', { characters: 0, rate_pico_usd: null, amount_micro_usd: 1 }, PRICE],
  ['a rate without characters', { characters: null }, PRICE],
  ['characters of what is no charge', { ...ended, kind: 'top_up', reference: 'cs' }, PRICE],
  ['a kind that nobody knows', { kind: 'gift', reference: 'x' }, KIND],
  ['a charge that has ended already', ended, NOW],
  ['a spend that has ended already', { ...spend, ...ended }, NOW],
  ['a transfer of yesterday', { created_at: sql`now() - interval '1 day'` }, NOW],
  ['a lease of two days', { lease_until: sql`now() + interval '2 days'` }, LEASE],
];

for (const [name, columns, refusal] of CASES) {
  test(`the books ${refusal ? 'refuse' : 'take'} ${name}`, async (t) => {
    const { url } = await testDatabase(t);
    const db = openDatabase(url, { maxConnections: 1 });
    t.teardown(() => db.destroy());
    const row = { ...HOLD, ...columns } as never;
    const inserted = db.insertInto('transfer').values(row).execute();
    if (refusal) await assert.rejects(inserted, refusal);
    else await inserted;
  });
}
