import { randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import {
  ADJUSTMENT,
  CARD_TOTAL,
  CHAIN,
  CLAWBACK,
  CLAWBACK_PURCHASE,
  CREDITED,
  DEBT_PAYER,
  DENOMINATION,
  GUARDS,
  HOLD,
  INDEBTED,
  LEASE,
  NEGATIVE,
  NONCE,
  OWN_TRANSFERS,
  other,
  PAYER,
  payer,
  payment,
  SESSION,
  SETTLEMENT,
  SIDES,
  STRAY,
  spend,
  UNCLEAR,
  unsettle,
  WALLET_TOTAL,
} from './audit-rules.ts';

/** What is broken, the statements that break it, and the rules of the audit that then fail. */
type Corruption = [string, Statements, string[]];
type Statements = (cardAccount: string) => RawBuilder<unknown>[];

/** Those that break the same rules, by what is broken. */
const corruptions = (rules: string[], named: Readonly<Record<string, Statements>>): Corruption[] =>
  Object.entries(named).map(([name, statements]) => [name, statements, rules]);

const ADJUSTMENT_KEY = randomUUID();

/** Of balances, holds and purchases. */
const OF_BALANCES: Corruption[] = [
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

/** Of nonces, payments on the chain and the guards. */
const OF_PAYMENTS: Corruption[] = [
  ...corruptions([NONCE], {
    'a debit that is lost, with its nonce spent': () => [
      sql`update account set balance_micro_usd = balance_micro_usd + 10 where id = ${payer}`,
      sql`delete from transfer where ${spend('posted')}`,
    ],
    'a nonce that is forgotten too early': () => [sql`delete from prepaid_nonce where nonce = 'posted'`],
    'a nonce of a failed spend that is free again': () => [sql`delete from prepaid_nonce where nonce = 'voided'`],
    'a nonce that is spent without a debit': () => [
      sql`insert into prepaid_nonce (account_id, nonce, hold_id) values (${payer}, 'another', gen_random_uuid())`,
    ],
    'a nonce that is spent in another wallet': () => [
      sql`update prepaid_nonce set account_id = ${other} where nonce = 'posted'`,
    ],
    "a nonce that names another request's debit": () => [
      sql`update prepaid_nonce set hold_id = (select id from transfer where ${spend('voided')}) where nonce = 'posted'`,
    ],
    'two debits for one nonce': () => [
      sql`update account set balance_micro_usd = balance_micro_usd - 10 where id = ${payer}`,
      sql`insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, created_at,
                            ended_at)
      select kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference,
             created_at + interval '1 microsecond', ended_at
      from transfer where ${spend('posted')}`,
    ],
  }),
  ...corruptions([SETTLEMENT], {
    'a deposit that is paid and not credited': () => [
      sql`update account set balance_micro_usd = balance_micro_usd - 500 where id = ${other}`,
      sql`delete from transfer where reference = ${payment('other deposit')}`,
    ],
    'a deposit that is credited with more than was paid': () => [
      sql`update account set balance_micro_usd = balance_micro_usd + 1 where id = ${payer}`,
      sql`update transfer set amount_micro_usd = amount_micro_usd + 1 where reference = ${payment('deposit')}`,
    ],
    'a deposit that is not settled': () => [unsettle('deposit')],
    'a deposit without a payment': () => [sql`delete from x402_payment where identifier = 'deposit'`],
    'a payment for speech that is credited to a wallet': () => [
      sql`update x402_payment set purpose = 'speech' where identifier = 'deposit'`,
    ],
    'a deposit that is booked as revenue': () => [
      sql`update account set balance_micro_usd = balance_micro_usd - 500 where id = ${other}`,
      sql`update transfer set kind = 'settlement', credit_account_id = ${contra.usdcRevenue}
      where reference = ${payment('other deposit')}`,
    ],
  }),
  ...corruptions([SETTLEMENT, GUARDS], {
    'a deposit that is credited twice': () => [
      sql`drop index transfer_deposit`,
      sql`update account set balance_micro_usd = balance_micro_usd + 500 where id = ${other}`,
      sql`insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, created_at,
                            ended_at)
      select kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, created_at,
             ended_at
      from transfer where reference = ${payment('other deposit')}`,
    ],
  }),
  ...corruptions([PAYER], {
    "a deposit that is credited to another account than its payer's": () => [
      sql`update account set balance_micro_usd = balance_micro_usd + case id when ${other} then -500 else 500 end
      where kind = 'wallet'`,
      sql`update transfer set credit_account_id = ${payer} where reference = ${payment('other deposit')}`,
    ],
  }),
];

const debtor = sql`(select account_id from clawback where id = 're_1')`;
const debt = sql`(select id from account where kind = 'debt')`;

/** Of refunds, disputes and debts. The ledger has a refund re_1 and a dispute dp_1 of one purchase, and a debt left. */
const OF_CLAWBACKS: Corruption[] = [
  ...corruptions([CLAWBACK], {
    'a refund that is not booked': () => [
      sql`delete from transfer where reference = 're_1'`,
      sql`update account set balance_micro_usd = balance_micro_usd - 1000000 where id = ${debt}`,
    ],
    'a refund that is booked twice': () => [
      sql`insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
      values ('refund', 'posted', ${debt}, ${contra.cardClearing}, 1000000, 're_1', now())`,
      sql`update account set balance_micro_usd = balance_micro_usd + 1000000 where id = ${debt}`,
    ],
    'a refund of half its amount': () => [
      sql`update transfer set amount_micro_usd = 500000 where reference = 're_1'`,
      sql`update account set balance_micro_usd = balance_micro_usd - 500000 where id = ${debt}`,
    ],
    'a dispute that is won, and whose money is not returned': () => [
      sql`update clawback set state = 'returned' where id = 'dp_1'`,
    ],
  }),
  ...corruptions([CLAWBACK, CLAWBACK_PURCHASE], {
    'a dispute of a purchase of somebody else': (account) => [
      sql`update clawback set account_id = ${account} where id = 'dp_1'`,
    ],
  }),
  ...corruptions([UNCLEAR], {
    'a refund whose status nobody knows': () => [sql`update clawback set is_status_known = false where id = 're_1'`],
  }),
  ...corruptions([INDEBTED], {
    'a debtor who may spend again': () => [sql`update account set is_indebted = false where id = ${debtor}`],
  }),
  ...corruptions([OWN_TRANSFERS, INDEBTED], {
    'a debt that is forgotten': () => [sql`update account set balance_micro_usd = 0 where id = ${debt}`],
  }),
  ...corruptions([DEBT_PAYER], {
    'a debt that somebody else has paid': (account) => [
      sql`update transfer set debit_account_id = ${account} where position = (select max(position) from transfer where kind = 'debt_payment')`,
      sql`update account set balance_micro_usd = balance_micro_usd + 4000000 where id = ${debtor}`,
      sql`update account set balance_micro_usd = balance_micro_usd - 4000000 where id = ${account}`,
    ],
  }),
  ...corruptions([HOLD, CREDITED], {
    'a refund that is still on its way': () => [
      sql`update transfer set state = 'pending', ended_at = null where reference = 're_1'`,
    ],
  }),
];

export const CORRUPTIONS = [...OF_BALANCES, ...OF_PAYMENTS, ...OF_CLAWBACKS];
