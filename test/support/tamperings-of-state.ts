import { sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import { balance, charge, NEVER, type Tampering, tamperings, wallet } from './tampering.ts';

/** Of leases, jobs, accounts, nonces and the guards themselves. */
export const STATE: readonly Tampering[] = [
  ...tamperings(['forbidden', 'audit'], {
    'a hold is leased until 2099': ({ card }) => [
      sql`update transfer set lease_until = ${NEVER} where id = ${charge(card, 'pending')}`,
    ],
    'a queued job is due in 2099': ({ jobs }) => [sql`update job set run_at = ${NEVER} where id = ${jobs.queued}`],
    'a job takes the hold of another request': ({ jobs, card }) => [
      sql`update job set hold_id = ${charge(card, 'pending')}, fence = 1 where id = ${jobs.queued}`,
    ],
    'a queued job is deleted': ({ jobs }) => [sql`delete from job where id = ${jobs.queued}`],
    'an account is deleted with its balance': ({ otherCard }) => [sql`delete from account where id = ${otherCard}`],
    "a wallet becomes another address's": ({ otherPayer }) => [
      sql`update account set address = '0x' || repeat('7', 40) where address = ${otherPayer}`,
    ],
    'the account of card revenue has another name': () => [
      sql`update account set contra_name = 'petty_cash' where id = ${contra.cardRevenue}`,
    ],
    'a charge becomes a spend': ({ card }) => [
      sql`update transfer set kind = 'spend', reference = 'x' where id = ${charge(card)}`,
    ],
    'an ended charge is dated back by a day': ({ otherCard }) => [
      sql`
      update transfer set created_at = created_at - interval '1 day', ended_at = ended_at - interval '1 day'
      where id = ${charge(otherCard)}`,
    ],
    'a nonce is free again': () => [sql`delete from prepaid_nonce where nonce = 'posted'`],
    'a nonce is dated back, to be pruned': () => [
      sql`update prepaid_nonce set spent_at = spent_at - interval '2 days' where nonce = 'posted'`,
    ],
  }),
  ...tamperings(['audit', 'audit'], {
    'a hold has no lease and no job': ({ card }) => [
      sql`update transfer set lease_until = null where id = ${charge(card, 'pending')}`,
    ],
    'a job belongs to a dead worker until 2099': ({ jobs }) => [
      sql`update job set lease_until = ${NEVER} where id = ${jobs.processing}`,
    ],
    'a balance moves to another account': ({ card, otherCard }) => [
      balance(card, -1_000_000),
      balance(otherCard, 1_000_000),
    ],
    'a balance is raised': ({ payer }) => [balance(wallet(payer), 1)],
    'the triggers refuse nothing any more': () => [
      sql`
      create or replace function refuse_change() returns trigger language plpgsql as 'begin return new; end'`,
    ],
    'a constraint is dropped': () => [sql`alter table x402_payment drop constraint x402_payment_transaction_hash`],
  }),
  ...tamperings(['forbidden', 'seal'], {
    'a completed job is set failed, its charge voided and given back': ({ jobs, card }) => [
      sql`
      update job set state = 'failed', error_code = 'x', error_message = 'x', mime_type = null, size_bytes = null
      where id = ${jobs.completed}`,
      sql`update transfer set state = 'voided' where id = (select hold_id from job where id = ${jobs.completed})`,
      balance(card, 198),
    ],
    'the fence of an ended charge is raised': ({ card }) => [
      sql`update transfer set fence = fence + 1 where id = ${charge(card)}`,
    ],
    'an ended charge names another request': ({ card }) => [
      sql`update transfer set trace_id = gen_random_uuid() where id = ${charge(card)}`,
    ],
  }),
  ...tamperings(['forbidden', 'forbidden'], {
    'an amount is negative': ({ card }) => [
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd)
      values ('charge', 'pending', ${card}, ${contra.cardRevenue}, -1000000)`,
      balance(card, 1_000_000),
    ],
  }),
  ...tamperings(['audit', 'unseen'], {
    'a trigger is switched off': () => [sql`alter table transfer disable trigger transfer_ended`],
  }),
];
