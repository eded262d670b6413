import { randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import {
  ADJUSTMENT,
  CARD_TOTAL,
  CHAIN,
  CLAWBACK_PURCHASE,
  DENOMINATION,
  GUARDS,
  HOLD,
  LEASE,
  NEGATIVE,
  NONCE,
  OWN_TRANSFERS,
  other,
  payer,
  SESSION,
  SETTLEMENT,
  SIDES,
  STRAY,
  spend,
  unsettle,
  WALLET_TOTAL,
} from './audit-rules.ts';

/** What is broken, the statements that break it, and the rules of the audit that then fail. */
export type Corruption = [string, Statements, string[]];
type Statements = (cardAccount: string) => RawBuilder<unknown>[];

/** Those that break the same rules, by what is broken. */
export const corruptions = (rules: string[], named: Readonly<Record<string, Statements>>): Corruption[] =>
  Object.entries(named).map(([name, statements]) => [name, statements, rules]);

const ADJUSTMENT_KEY = randomUUID();

/** Of balances, holds and purchases. */
export const CORRUPTIONS_OF_BALANCES: Corruption[] = [
  ...corruptions([CARD_TOTAL, OWN_TRANSFERS], {
    'money that is made up on a card account': (account) => [
      sql`update account set balance_micro_usd = balance_micro_usd + 1 where id = ${account}`,
    ],
    'a charge that is lost': () => [sql`delete from transfer where kind = 'charge'`],
  }),
  ...corruptions([OWN_TRANSFERS], {
    'money that moves between two card accounts without a transfer': (account) => [
      sql`with thief as (insert into account (kind, balance_micro_usd) values ('card', 7))
      update account set balance_micro_usd = balance_micro_usd - 7 where id = ${account}`,
    ],
    'money that moves between two wallets without a transfer': () => [
      sql`update account set balance_micro_usd = balance_micro_usd + case id when ${payer} then -7 else 7 end
      where kind = 'wallet'`,
    ],
  }),
  ...corruptions([ADJUSTMENT], {
    'an adjustment that nobody wrote down': (account) => [
      sql`insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
      values ('adjustment', 'posted', ${contra.cardAdjustments}, ${account}, 7, 'x', now())`,
      sql`update account set balance_micro_usd = balance_micro_usd + 7 where id = ${account}`,
    ],
    'an adjustment of another amount than was written down': (account) => [
      sql`with adjustment as (
        insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
        values ('adjustment', 'posted', ${contra.cardAdjustments}, ${account}, 7, ${ADJUSTMENT_KEY}, now()) returning id
      )
      insert into operator_action (operator, action, subject, reason, key, transfer_id, detail)
      select 'alice', 'adjust', ${account}, 'x', ${ADJUSTMENT_KEY}::uuid, id, '{"amountMicroUsd": -7}' from adjustment`,
      sql`update account set balance_micro_usd = balance_micro_usd + 7 where id = ${account}`,
    ],
  }),
  ...corruptions([STRAY], {
    'a transfer of nobody': () => [
      sql`insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, ended_at)
      values ('charge', 'voided', ${randomUUID()}, ${contra.cardRevenue}, 1, now())`,
    ],
  }),
  ...corruptions([CARD_TOTAL, OWN_TRANSFERS, SESSION], {
    'a top-up without its transfer': () => [sql`delete from transfer where kind = 'top_up'`],
  }),
  ...corruptions([SIDES], {
    'a spend that is booked as card revenue': () => [
      sql`update transfer set credit_account_id = ${contra.cardRevenue} where kind = 'spend'`,
    ],
    'a deposit that is taken from card money': () => [
      sql`update transfer set debit_account_id = ${contra.cardClearing} where kind = 'deposit'`,
    ],
  }),
  ...corruptions([DENOMINATION], {
    'a database that is given to another network': () => [
      sql`alter table instance disable trigger instance_keeps_network`,
      sql`update instance set network = 'eip155:1'`,
    ],
  }),
  ...corruptions([SESSION], {
    'a top-up of another amount': () => [sql`update top_up set amount_cents = amount_cents + 1`],
  }),
  ...corruptions([SESSION, CLAWBACK_PURCHASE], {
    'a transfer without its top-up': () => [sql`update top_up set state = 'open', credited_at = null`],
  }),
  ...corruptions([HOLD], {
    'a hold whose lease has passed long ago': () => [
      sql`update transfer set lease_until = now() - interval '1 hour' where kind = 'charge'`,
    ],
    'a spend of a dead process that nobody gives back': () => [
      sql`update transfer set lease_until = now() - interval '1 hour' where ${spend('pending')}`,
    ],
  }),
  ...corruptions([SETTLEMENT], {
    'revenue that is lost': () => [sql`delete from transfer where kind = 'settlement'`],
    'revenue of another amount than was paid': () => [
      sql`update transfer set amount_micro_usd = 197 where kind = 'settlement'`,
    ],
    'revenue of a payment that is not settled': () => [unsettle('speech')],
    'revenue of no payment': () => [sql`delete from x402_payment where identifier = 'speech'`],
  }),
  ...corruptions([CHAIN, GUARDS], {
    'one authorization for two payments': () => [
      sql`alter table x402_payment drop constraint x402_payment_network_asset_payer_nonce_key`,
      sql`update x402_payment set nonce = 'speech' where identifier = 'deposit'`,
    ],
  }),
  ...corruptions([LEASE], {
    'a payment whose process died long ago': () => [
      sql`update x402_payment set state = 'settling', lease_until = now() - interval '1 hour' where identifier = 'unknown'`,
    ],
  }),
  ...corruptions([OWN_TRANSFERS, WALLET_TOTAL], {
    'money that is made up in a wallet': () => [
      sql`update account set balance_micro_usd = balance_micro_usd + 1 where id = ${payer}`,
    ],
    'a spend that was given back and posted': () => [
      sql`update transfer set state = 'posted' where ${spend('voided')}`,
    ],
    'a spend that was taken and voided': () => [sql`update transfer set state = 'voided' where ${spend('posted')}`],
  }),
  ...corruptions([NEGATIVE, GUARDS], {
    'a wallet that is overdrawn': () => [
      sql`alter table account drop constraint account_balance_micro_usd_check`,
      sql`update account set balance_micro_usd = balance_micro_usd - 2000 where id = ${payer}`,
      sql`with spend as (
          insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
          values ('spend', 'posted', ${payer}, ${contra.prepaidRevenue}, 2000, 'overdraft', now()) returning id
        )
        insert into prepaid_nonce (account_id, nonce, hold_id) select ${payer}, 'overdraft', id from spend`,
    ],
  }),
  ...corruptions([OWN_TRANSFERS, SIDES], {
    'a spend that pays another wallet': () => [
      sql`update transfer set credit_account_id = ${other} where ${spend('posted')}`,
    ],
  }),
  ...corruptions([CARD_TOTAL, SIDES, WALLET_TOTAL, NONCE], {
    'a spend that a card account pays': (account) => [
      sql`update account set balance_micro_usd = balance_micro_usd + case kind when 'card' then -10 else 10 end
      where id in (${account}, ${payer})`,
      sql`update transfer set debit_account_id = ${account} where ${spend('posted')}`,
    ],
  }),
];
