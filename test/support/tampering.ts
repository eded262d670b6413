import { type RawBuilder, sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import type { Populated } from './populated.ts';

/** The database refuses it; or who sees it first, of the audit, audit --external, and a seal. */
export type Fate = 'forbidden' | 'audit' | 'external' | 'seal' | 'unseen';

/** How the owner of the database, or whoever got its password, changes the books: statements of one transaction. */
export interface Tampering {
  readonly name: string;
  /** What becomes of it, and what when the owner has switched off the triggers for it. */
  readonly fates: readonly [guarded: Fate, unguarded: Fate];
  readonly statements: (books: Populated) => readonly RawBuilder<unknown>[];
}

/** Those with the same fates, by name. */
export const tamperings = (
  fates: Tampering['fates'],
  named: Readonly<Record<string, Tampering['statements']>>,
): readonly Tampering[] => Object.entries(named).map(([name, statements]) => ({ name, fates, statements }));

export const NEVER = sql`timestamptz '2099-01-01'`;
export const HASH = `0x${'7'.repeat(64)}`;

export const wallet = (address: string) => sql`(select id from account where address = ${address})`;
export const balance = (account: RawBuilder<unknown> | string, by: number) => sql`
  update account set balance_micro_usd = balance_micro_usd + ${by}::bigint where id = ${account}`;
/** Ids of a transfer or payment, the last one of those that match. */
export const charge = (account: string, state = 'posted') => sql`(
  select id from transfer
  where kind = 'charge' and state = ${state} and debit_account_id = ${account}
    and not exists (select from job where hold_id = transfer.id)
  order by position desc limit 1)`;
export const topUp = (account: string) =>
  sql`(select id from transfer where kind = 'top_up' and credit_account_id = ${account} order by position desc limit 1)`;
export const deposit = (address: string) => sql`(
  select id from transfer where kind = 'deposit' and credit_account_id = ${wallet(address)}
  order by position desc limit 1)`;
export const payment = (state: string, purpose = 'speech') => sql`(
  select id from x402_payment where state = ${state} and purpose = ${purpose} order by position desc limit 1)`;

/** A posted deposit with a payment, a transfer, and the balance that it makes. */
export const forgedDeposit = (payer: string, hash: RawBuilder<unknown>) => [
  sql`
  insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                            valid_before, head_block, transaction_hash, log_index, receipt, settling_at, settled_at,
                            purpose)
  select 'settled', 'forged', request_hash, network, asset, payer, '0x' || repeat('7', 64), pay_to, amount_micro_usd,
         valid_before, head_block, ${hash}, log_index, receipt, now(), now(), purpose
  from x402_payment where purpose = 'deposit' and payer = ${payer}`,
  sql`
  insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
  select 'deposit', 'posted', ${contra.usdcClearing}, ${wallet(payer)}, amount_micro_usd, id::text, now()
  from x402_payment where identifier = 'forged'`,
  sql`
  update account set balance_micro_usd = balance_micro_usd + amount_micro_usd
  from x402_payment where identifier = 'forged' and address = ${payer}`,
];

export const inventedHold = (account: string, columns = '', values = '') => [
  sql`
  insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, lease_until
                        ${sql.raw(columns)})
  values ('charge', 'pending', ${account}, ${contra.cardRevenue}, 18, now() + interval '1 minute' ${sql.raw(values)})`,
  sql`update transfer set state = 'posted', ended_at = now() where position = (select max(position) from transfer)`,
  balance(account, -18),
];
