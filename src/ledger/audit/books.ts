import { sql } from 'kysely';
import { contra } from '../transfer.ts';
import { NONCE_RETENTION_HOURS } from '../wallets.ts';
import type { Invariant } from './invariant.ts';

export const balanceInvariants: readonly Invariant[] = [
  {
    rule: "the card accounts' balances are what was credited, less what was charged, and debts paid",
    breaches: sql`
      with totals as (
        select (select coalesce(sum(balance_micro_usd), 0) from account where kind = 'card') as balances,
               coalesce(sum(amount_micro_usd) filter (
                 where kind in ('top_up', 'refund_failed', 'dispute_won') and state = 'posted'), 0) as credits,
               coalesce(sum(amount_micro_usd) filter (where kind = 'charge' and state <> 'voided'), 0) as charges,
               coalesce(sum(amount_micro_usd) filter (where kind = 'debt_payment'), 0) as debt_payments,
               coalesce(sum(case when debit_account_id = ${contra.cardAdjustments} then amount_micro_usd
                                 else -amount_micro_usd end) filter (where kind = 'adjustment'), 0) as adjustments
        from transfer
      )
      select * from totals where balances <> credits - charges - debt_payments + adjustments`,
  },
  {
    rule: "an account's balance is the sum of its own transfers",
    breaches: sql`
      with contra as materialized (
        select id from account where kind = 'contra'
      ), movement as (
        select credit_account_id as account_id, amount_micro_usd as amount from transfer
        where state = 'posted' and credit_account_id not in (select id from contra)
        union all
        select debit_account_id, -amount_micro_usd from transfer
        where state <> 'voided' and debit_account_id not in (select id from contra)
      ), expected as (
        select account_id, sum(amount) as amount from movement group by account_id
      )
      select account.id, account.kind, account.balance_micro_usd as balance, coalesce(expected.amount, 0) as transfers
      from account left join expected on expected.account_id = account.id
      where account.kind <> 'contra' and account.balance_micro_usd
            <> coalesce(expected.amount, 0) * case when account.kind = 'debt' then -1 else 1 end`,
  },
  {
    rule: 'no balance is negative',
    breaches: sql`select id, balance_micro_usd as balance from account where balance_micro_usd < 0`,
  },
  {
    rule: 'both accounts of a transfer exist',
    breaches: sql`
      select transfer.id, debit_account_id, credit_account_id from transfer
      left join account debit on debit.id = debit_account_id
      left join account credit on credit.id = credit_account_id
      where debit.id is null or credit.id is null`,
  },
  {
    rule: 'a transfer runs between the accounts that its kind names',
    breaches: sql`
      select transfer.id, transfer.kind, debit.kind as debit, credit.kind as credit from transfer
      join account debit on debit.id = transfer.debit_account_id
      join account credit on credit.id = transfer.credit_account_id
      where not exists (
        select from (
          values ('top_up', 'card_clearing', 'card'), ('charge', 'card', 'card_revenue'),
                 ('settlement', 'usdc_clearing', 'usdc_revenue'),
                 ('deposit', 'usdc_clearing', 'wallet'), ('spend', 'wallet', 'prepaid_revenue'),
                 ('refund', 'debt', 'card_clearing'), ('refund_failed', 'card_clearing', 'card'),
                 ('dispute', 'debt', 'card_clearing'), ('dispute_won', 'card_clearing', 'card'),
                 ('debt_payment', 'card', 'debt'),
                 ('adjustment', 'card_adjustments', 'card'), ('adjustment', 'card', 'card_adjustments')
        ) named (kind, debit, credit)
        where named.kind = transfer.kind and named.debit = coalesce(debit.contra_name, debit.kind)
          and named.credit = coalesce(credit.contra_name, credit.kind))`,
  },
  {
    rule: "the wallets' balances are their deposits less the pending and posted spends",
    breaches: sql`
      with totals as (
        select (select coalesce(sum(balance_micro_usd), 0) from account where kind = 'wallet') as balances,
               (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'deposit' and state = 'posted')
                 as deposits,
               (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'spend' and state <> 'voided')
                 as spends
      )
      select * from totals where balances <> deposits - spends`,
  },
  {
    rule: 'a nonce is spent if and only if a wallet was debited for it',
    breaches: sql`
      select coalesce(spend.debit_account_id, nonce.account_id) as account, nonce.spent_at, spend.id as spend
      from (select * from transfer where kind = 'spend') spend
      full join prepaid_nonce nonce
        on nonce.account_id = spend.debit_account_id and nonce.nonce = spend.reference
          and nonce.spent_at = spend.created_at and nonce.hold_id = spend.id
      where spend.id is null
         or nonce.nonce is null and spend.created_at > now() - make_interval(hours => ${NONCE_RETENTION_HOURS}::int)`,
  },
];

const RECONCILER_GRACE_SECONDS = 120;

export const underWayInvariants: readonly Invariant[] = [
  {
    rule: 'a hold has ended, is within its lease, or is owned by a live job',
    breaches: sql`
      select id, amount_micro_usd as amount, created_at, lease_until from transfer
      where state = 'pending'
        and (lease_until < now() - make_interval(secs => ${RECONCILER_GRACE_SECONDS})
             or lease_until is null and not exists (
               select from job where job.hold_id = transfer.id and job.state in ('queued', 'processing')))`,
  },
  {
    rule: "a job's hold is pending while it lives, posted when it is completed, voided when it failed, and has its fence",
    breaches: sql`
      select job.id, job.state, transfer.state as hold, job.fence, transfer.fence as hold_fence
      from job left join transfer on transfer.id = job.hold_id
      where job.fence is distinct from transfer.fence or transfer.lease_until is not null
         or transfer.debit_account_id is distinct from job.account_id
         or transfer.state is distinct from
            case job.state when 'completed' then 'posted' when 'failed' then 'voided' else 'pending' end`,
  },
  {
    rule: 'a finished job has no text (R18), and an unfinished one has',
    breaches: sql`
      select id, state from job where (state in ('completed', 'failed')) = (text is not null)`,
  },
  {
    rule: 'a payment under way is within its lease',
    breaches: sql`
      select id, state, amount_micro_usd as amount, created_at, lease_until from x402_payment
      where state in ('reserved', 'settling')
        and lease_until < now() - make_interval(secs => ${RECONCILER_GRACE_SECONDS})`,
  },
];

/** During a rollout, processes of the previous release still charge without naming the characters. */
const ROLLOUT_HOURS = 24;

export const chargeInvariants: readonly Invariant[] = [
  {
    rule: 'a charge is the price of the characters that it names, and names them',
    breaches: sql`
      with begun as (
        select min(created_at) + make_interval(hours => ${ROLLOUT_HOURS}::int) as at from transfer
        where characters is not null
      )
      select id, kind, amount_micro_usd as amount, characters, rate_pico_usd as rate, created_at from transfer, begun
      where kind in ('charge', 'spend')
        and (amount_micro_usd <> ceil(characters::numeric * rate_pico_usd / 1000000)
             or rate_pico_usd is null and characters is not null and kind = 'charge'
             or characters is null and created_at > begun.at)`,
  },
  {
    rule: "a job's hold was placed by the request that made the job",
    breaches: sql`
      select job.id, job.hold_id, job.trace_id, transfer.trace_id as hold_trace_id
      from job join transfer on transfer.id = job.hold_id
      where transfer.trace_id <> job.trace_id`,
  },
];

export const adjustmentInvariants: readonly Invariant[] = [
  {
    rule: 'each adjustment matches exactly one operator action',
    breaches: sql`
      select adjustment.id, adjustment.amount_micro_usd as amount, action.id as action, action.subject, action.detail
      from (select * from transfer where kind = 'adjustment') adjustment
      full join (select * from operator_action where action = 'adjust') action on action.transfer_id = adjustment.id
      where adjustment.id is null or action.id is null or action.key::text <> adjustment.reference
         or (action.detail ->> 'amountMicroUsd')::bigint is distinct from
            case action.subject when adjustment.credit_account_id::text then adjustment.amount_micro_usd
                                when adjustment.debit_account_id::text then -adjustment.amount_micro_usd end`,
  },
];
