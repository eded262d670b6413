import { sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import { balance, charge, NEVER, type Tampering, wallet } from './tampering.ts';

/** Of leases, jobs, accounts, nonces and the guards themselves. */
export const STATE: readonly Tampering[] = [
  {
    name: 'a hold is leased until 2099',
    fates: ['forbidden', 'audit'],
    statements: ({ card }) => [sql`update transfer set lease_until = ${NEVER} where id = ${charge(card, 'pending')}`],
  },
  {
    name: 'a hold has no lease and no job',
    fates: ['audit', 'audit'],
    statements: ({ card }) => [sql`update transfer set lease_until = null where id = ${charge(card, 'pending')}`],
  },
  {
    name: 'a queued job is due in 2099',
    fates: ['forbidden', 'audit'],
    statements: ({ jobs }) => [sql`update job set run_at = ${NEVER} where id = ${jobs.queued}`],
  },
  {
    name: 'a job belongs to a dead worker until 2099',
    fates: ['audit', 'audit'],
    statements: ({ jobs }) => [sql`update job set lease_until = ${NEVER} where id = ${jobs.processing}`],
  },
  {
    name: 'a job takes the hold of another request',
    fates: ['forbidden', 'audit'],
    statements: ({ jobs, card }) => [
      sql`update job set hold_id = ${charge(card, 'pending')}, fence = 1 where id = ${jobs.queued}`,
    ],
  },
  {
    name: 'a completed job is set failed, its charge voided and given back',
    fates: ['forbidden', 'seal'],
    statements: ({ jobs, card }) => [
      sql`
      update job set state = 'failed', error_code = 'x', error_message = 'x', mime_type = null, size_bytes = null
      where id = ${jobs.completed}`,
      sql`update transfer set state = 'voided' where id = (select hold_id from job where id = ${jobs.completed})`,
      balance(card, 198),
    ],
  },
  {
    name: 'a queued job is deleted',
    fates: ['forbidden', 'audit'],
    statements: ({ jobs }) => [sql`delete from job where id = ${jobs.queued}`],
  },
  {
    name: 'a balance moves to another account',
    fates: ['audit', 'audit'],
    statements: ({ card, otherCard }) => [balance(card, -1_000_000), balance(otherCard, 1_000_000)],
  },
  { name: 'a balance is raised', fates: ['audit', 'audit'], statements: ({ payer }) => [balance(wallet(payer), 1)] },
  {
    name: 'an account is deleted with its balance',
    fates: ['forbidden', 'audit'],
    statements: ({ otherCard }) => [sql`delete from account where id = ${otherCard}`],
  },
  {
    name: "a wallet becomes another address's",
    fates: ['forbidden', 'audit'],
    statements: ({ otherPayer }) => [
      sql`update account set address = '0x' || repeat('7', 40) where address = ${otherPayer}`,
    ],
  },
  {
    name: 'the account of card revenue has another name',
    fates: ['forbidden', 'audit'],
    statements: () => [sql`update account set contra_name = 'petty_cash' where id = ${contra.cardRevenue}`],
  },
  {
    name: 'a charge becomes a spend',
    fates: ['forbidden', 'audit'],
    statements: ({ card }) => [sql`update transfer set kind = 'spend', reference = 'x' where id = ${charge(card)}`],
  },
  {
    name: 'the fence of an ended charge is raised',
    fates: ['forbidden', 'seal'],
    statements: ({ card }) => [sql`update transfer set fence = fence + 1 where id = ${charge(card)}`],
  },
  {
    name: 'an ended charge is dated back by a day',
    fates: ['forbidden', 'audit'],
    statements: ({ otherCard }) => [
      sql`
      update transfer set created_at = created_at - interval '1 day', ended_at = ended_at - interval '1 day'
      where id = ${charge(otherCard)}`,
    ],
  },
  {
    name: 'an ended charge names another request',
    fates: ['forbidden', 'seal'],
    statements: ({ card }) => [sql`update transfer set trace_id = gen_random_uuid() where id = ${charge(card)}`],
  },
  {
    name: 'an amount is negative',
    fates: ['forbidden', 'forbidden'],
    statements: ({ card }) => [
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd)
      values ('charge', 'pending', ${card}, ${contra.cardRevenue}, -1000000)`,
      balance(card, 1_000_000),
    ],
  },
  {
    name: 'a nonce is free again',
    fates: ['forbidden', 'audit'],
    statements: () => [sql`delete from prepaid_nonce where nonce = 'posted'`],
  },
  {
    name: 'a nonce is dated back, to be pruned',
    fates: ['forbidden', 'audit'],
    statements: () => [sql`update prepaid_nonce set spent_at = spent_at - interval '2 days' where nonce = 'posted'`],
  },
  {
    name: 'a trigger is switched off',
    fates: ['audit', 'unseen'],
    statements: () => [sql`alter table transfer disable trigger transfer_ended`],
  },
  {
    name: 'the triggers refuse nothing any more',
    fates: ['audit', 'audit'],
    statements: () => [
      sql`
      create or replace function refuse_change() returns trigger language plpgsql as 'begin return new; end'`,
    ],
  },
  {
    name: 'a constraint is dropped',
    fates: ['audit', 'audit'],
    statements: () => [sql`alter table x402_payment drop constraint x402_payment_transaction_hash`],
  },
];
