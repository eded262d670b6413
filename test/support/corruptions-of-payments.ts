import { sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import { GUARDS, NONCE, other, PAYER, payer, payment, SETTLEMENT, spend, unsettle } from './audit-rules.ts';
import { type Corruption, corruptions } from './corruptions-of-balances.ts';

/** Of nonces, payments on the chain and the guards. */
export const CORRUPTIONS_OF_PAYMENTS: Corruption[] = [
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
