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
const tamperings = (
  fates: Tampering['fates'],
  named: Readonly<Record<string, Tampering['statements']>>,
): readonly Tampering[] => Object.entries(named).map(([name, statements]) => ({ name, fates, statements }));

const NEVER = sql`timestamptz '2099-01-01'`;
const HASH = `0x${'7'.repeat(64)}`;

const wallet = (address: string) => sql`(select id from account where address = ${address})`;
const balance = (account: RawBuilder<unknown> | string, by: number) => sql`
  update account set balance_micro_usd = balance_micro_usd + ${by}::bigint where id = ${account}`;
/** Ids of a transfer or payment, the last one of those that match. */
const charge = (account: string, state = 'posted') => sql`(
  select id from transfer
  where kind = 'charge' and state = ${state} and debit_account_id = ${account}
    and not exists (select from job where hold_id = transfer.id)
  order by position desc limit 1)`;
const topUp = (account: string) =>
  sql`(select id from transfer where kind = 'top_up' and credit_account_id = ${account} order by position desc limit 1)`;
const deposit = (address: string) => sql`(
  select id from transfer where kind = 'deposit' and credit_account_id = ${wallet(address)}
  order by position desc limit 1)`;
const payment = (state: string, purpose = 'speech') => sql`(
  select id from x402_payment where state = ${state} and purpose = ${purpose} order by position desc limit 1)`;

/** A posted deposit with a payment, a transfer, and the balance that it makes. */
const forgedDeposit = (payer: string, hash: RawBuilder<unknown>) => [
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

const inventedHold = (account: string, columns = '', values = '') => [
  sql`
  insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, lease_until
                        ${sql.raw(columns)})
  values ('charge', 'pending', ${account}, ${contra.cardRevenue}, 18, now() + interval '1 minute' ${sql.raw(values)})`,
  sql`update transfer set state = 'posted', ended_at = now() where position = (select max(position) from transfer)`,
  balance(account, -18),
];

/** Of deposits and payments in USDC. */
const PAYMENTS: readonly Tampering[] = [
  ...tamperings(['forbidden', 'external'], {
    'a deposit is raised in all its rows': ({ payer }) => [
      sql`update x402_payment set amount_micro_usd = 200000 where purpose = 'deposit' and payer = ${payer}`,
      sql`update transfer set amount_micro_usd = 200000 where id = ${deposit(payer)}`,
      balance(wallet(payer), 100_000),
    ],
    'one chain transfer is booked twice, as another event': ({ payer }) => [
      ...forgedDeposit(payer, sql`'0x' || repeat('6', 64)`),
      sql`
      update x402_payment set transaction_hash = original.transaction_hash, log_index = original.log_index + 1
      from x402_payment original
      where x402_payment.identifier = 'forged' and original.payer = ${payer} and original.purpose = 'deposit'
        and original.identifier <> 'forged'`,
    ],
    "a deposit becomes another payer's, with its balance": ({ payer, otherPayer }) => [
      sql`update x402_payment set payer = ${otherPayer} where purpose = 'deposit' and payer = ${payer}`,
      sql`update transfer set credit_account_id = ${wallet(otherPayer)} where id = ${deposit(payer)}`,
      sql`update prepaid_nonce set account_id = ${wallet(otherPayer)}`,
      sql`update transfer set debit_account_id = ${wallet(otherPayer)} where kind = 'spend'`,
      sql`
      update account set balance_micro_usd = case address when ${payer} then 0 else 200000 - 2 * 198 end
      where kind = 'wallet'`,
    ],
    'a settled payment names another transaction': () => [
      sql`update x402_payment set transaction_hash = ${HASH} where id = ${payment('settled')}`,
    ],
    "a settled payment has another one's receipt": () => [
      sql`
      update x402_payment set receipt = (select receipt from x402_payment where id = ${payment('settled', 'deposit')})
      where id = ${payment('settled')}`,
    ],
    'a settled payment went to another payee': () => [
      sql`update x402_payment set pay_to = '0x' || repeat('7', 40) where id = ${payment('settled')}`,
    ],
    'a settled payment is set failed, and its revenue deleted': () => [
      sql`delete from transfer where kind = 'settlement' and reference = ${payment('settled')}::text`,
      sql`
      update x402_payment set state = 'failed', failed_at = now(), settled_at = null, transaction_hash = null,
                              log_index = null, receipt = null
      where id = ${payment('settled')}`,
    ],
  }),
  ...tamperings(['external', 'external'], {
    'a deposit is forged in all its rows': ({ payer }) => forgedDeposit(payer, sql`${HASH}`),
    'a paid payment is set failed': () => [
      sql`update x402_payment set state = 'failed', failed_at = now() where id = ${payment('unknown')}`,
    ],
  }),
  ...tamperings(['forbidden', 'forbidden'], {
    'one chain transfer is booked twice, its hash in upper case': ({ payer }) =>
      forgedDeposit(payer, sql`'0x' || upper(substr(transaction_hash, 3))`),
    'one chain transfer is booked twice, its hash with a zero more': ({ payer }) =>
      forgedDeposit(payer, sql`'0x0' || substr(transaction_hash, 3)`),
  }),
  ...tamperings(['forbidden', 'unseen'], {
    'a settled payment is told to have been spoken at another cost': () => [
      sql`update x402_payment set cost_pico_usd = 1 where id = ${payment('settled')}`,
    ],
    'a refused payment is forgotten, so that its authorization could be used again': () => [
      sql`delete from x402_payment where id = ${payment('refused')}`,
    ],
    'an unknown payment becomes a reservation, to be released': () => [
      sql`
      update x402_payment set state = 'reserved', settling_at = null, lease_until = now() where id = ${payment('unknown')}`,
      sql`delete from x402_payment where state = 'reserved'`,
    ],
  }),
  ...tamperings(['forbidden', 'audit'], {
    'a settled payment names another request': () => [
      sql`update x402_payment set trace_id = gen_random_uuid() where id = ${payment('settled')}`,
    ],
    'the chain is not asked about a payment until 2099': () => [
      sql`update x402_payment set checked_at = ${NEVER} where id = ${payment('unknown')}`,
    ],
    'a payment is leased until 2099': () => [
      sql`update x402_payment set state = 'settling', lease_until = ${NEVER} where id = ${payment('unknown')}`,
    ],
  }),
];

/** Of credit that was bought by card. */
const PURCHASES: readonly Tampering[] = [
  ...tamperings(['forbidden', 'external'], {
    'a purchase is raised in all its rows': ({ card }) => [
      sql`update top_up set amount_cents = 1900 where account_id = ${card} and state = 'credited'`,
      sql`update transfer set amount_micro_usd = 19000000 where id = ${topUp(card)}`,
      balance(card, 10_000_000),
    ],
    'a purchase vanishes in all its rows': ({ otherCard }) => [
      sql`delete from transfer where ${otherCard} in (debit_account_id, credit_account_id)`,
      sql`delete from top_up where account_id = ${otherCard}`,
      sql`update account set balance_micro_usd = 0 where id = ${otherCard}`,
    ],
  }),
  ...tamperings(['external', 'external'], {
    'a purchase is forged in all its rows': ({ card }) => [
      sql`
      insert into top_up (state, account_id, amount_cents, session_id, credited_at)
      values ('credited', ${card}, 1000, 'cs_test_forged', now())`,
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
      values ('top_up', 'posted', ${contra.cardClearing}, ${card}, 10000000, 'cs_test_forged', now())`,
      balance(card, 10_000_000),
    ],
    'a paid purchase is set expired': () => [
      sql`update top_up set state = 'expired' where state = 'open' and amount_cents = 500`,
    ],
    'a paid purchase is deleted before it is credited': () => [
      sql`delete from top_up where state = 'open' and amount_cents = 500`,
    ],
  }),
  ...tamperings(['forbidden', 'audit'], {
    "a purchase's row says B, and its transfer credits A": ({ otherCard, card }) => [
      sql`update top_up set account_id = ${otherCard} where account_id = ${card} and state = 'credited'`,
    ],
    "a purchase's transfer credits another account": ({ card, otherCard }) => [
      sql`update transfer set credit_account_id = ${otherCard} where id = ${topUp(card)}`,
      balance(card, -8_000_000),
      balance(otherCard, 9_000_000),
      balance(otherCard, -1_000_000),
    ],
    "the transfer of a purchase is another session's": ({ card }) => [
      sql`update transfer set reference = 'cs_test_other' where id = ${topUp(card)}`,
    ],
    'an open purchase is looked at in 2099': () => [
      sql`update top_up set next_check_at = ${NEVER} where state = 'open'`,
    ],
    "the processor's list counts as read until 2099": () => [sql`update processor_list set read_until = ${NEVER}`],
  }),
];

/** Of leases, jobs, accounts, nonces and the guards themselves. */
const STATE: readonly Tampering[] = [
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

/** Of charges and spends. */
const TRANSFERS: readonly Tampering[] = [
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

export const TAMPERINGS: readonly Tampering[] = [...TRANSFERS, ...PURCHASES, ...PAYMENTS, ...STATE];
