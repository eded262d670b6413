import { sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import { balance, charge, inventedHold, type Tampering, tamperings, wallet } from './tampering.ts';

/** Of charges and spends. */
export const TRANSFERS: readonly Tampering[] = [
  ...tamperings(['forbidden', 'seal'], {
    'an ended charge is voided, and the balance given back': ({ card }) => [
      sql`update transfer set state = 'voided' where id = ${charge(card)}`,
      balance(card, 198),
    ],
    'an ended charge is shrunk with what it paid for, and the balance given back': ({ card }) => [
      sql`update transfer set amount_micro_usd = 18, characters = 1 where id = ${charge(card)}`,
      balance(card, 180),
    ],
    'an ended charge is deleted, and the balance given back': ({ card }) => [
      sql`delete from transfer where id = ${charge(card)}`,
      balance(card, 198),
    ],
    'a charge moves to another account': ({ card, otherCard }) => [
      sql`update transfer set debit_account_id = ${otherCard} where id = ${charge(card)}`,
      balance(card, 198),
      balance(otherCard, -198),
    ],
    'a spend moves to another wallet, with its nonce': ({ payer, otherPayer }) => [
      sql`update prepaid_nonce set account_id = ${wallet(otherPayer)} where nonce = 'posted'`,
      sql`update transfer set debit_account_id = ${wallet(otherPayer)} where reference = 'posted'`,
      balance(wallet(payer), 198),
      balance(wallet(otherPayer), -198),
    ],
    'a spend is deleted with its nonce, and the balance given back': ({ payer }) => [
      sql`delete from prepaid_nonce where nonce = 'posted'`,
      sql`delete from transfer where reference = 'posted'`,
      balance(wallet(payer), 198),
    ],
  }),
  ...tamperings(['forbidden', 'audit'], {
    'an ended charge is shrunk, and the balance given back': ({ card }) => [
      sql`update transfer set amount_micro_usd = 98 where id = ${charge(card)}`,
      balance(card, 100),
    ],
    'all transfers and jobs are truncated': () => [sql`truncate transfer, job, job_segment, operator_action`],
    'a charge is invented, posted at once': ({ card }) => [
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, ended_at)
      values ('charge', 'posted', ${card}, ${contra.cardRevenue}, 18, now())`,
      balance(card, -18),
    ],
    'a charge is dated before the service told what it charges for': ({ card }) => [
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, created_at, ended_at)
      values ('charge', 'posted', ${card}, ${contra.cardRevenue}, 18, now() - interval '3 days', now())`,
      balance(card, -18),
    ],
    'a pending hold is raised': ({ card }) => [
      sql`update transfer set amount_micro_usd = 298 where id = ${charge(card, 'pending')}`,
      balance(card, -100),
    ],
  }),
  ...tamperings(['forbidden', 'unseen'], {
    'an ended charge is told to have been spoken at another cost': ({ card }) => [
      sql`update transfer set upstream = 'other', cost_pico_usd = 1 where id = ${charge(card)}`,
    ],
    'a pending hold pays for another model': ({ card }) => [
      sql`update transfer set model = 'other' where id = ${charge(card, 'pending')}`,
    ],
  }),
  ...tamperings(['audit', 'audit'], {
    'a charge for nothing is invented as a hold, and posted': ({ card }) => inventedHold(card),
  }),
  ...tamperings(['unseen', 'unseen'], {
    'a charge is invented as a hold with all that a charge has, and posted': ({ card }) =>
      inventedHold(card, ', characters, rate_pico_usd, trace_id', ', 1, 18000000, gen_random_uuid()'),
  }),
];
