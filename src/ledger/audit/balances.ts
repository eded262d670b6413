import { sql } from 'kysely';
import { contra } from '../contra.ts';
import { NONCE_RETENTION_HOURS } from '../wallets.ts';
import type { Invariant } from './invariant.ts';

/** Accounts beside their transfers. All amounts are in micro-USD. */
export const balanceInvariants: readonly Invariant[] = [
  {
    rule: "the card accounts' balances are what was credited, less what was charged and not reversed, and debts paid",
    breaches: sql`
      with totals as (
        select (select coalesce(sum(balance_micro_usd), 0) from account where kind = 'card') as balances,
               coalesce(sum(amount_micro_usd) filter (
                 where kind in ('top_up', 'refund_failed', 'dispute_won') and state = 'posted'), 0) as credits,
               coalesce(sum(amount_micro_usd) filter (where kind = 'charge' and state <> 'voided'), 0) as charges,
               coalesce(sum(amount_micro_usd) filter (
                 where kind = 'reversal' and debit_account_id = ${contra.cardRevenue}), 0) as reversals,
               coalesce(sum(amount_micro_usd) filter (where kind = 'debt_payment'), 0) as debt_payments,
               coalesce(sum(case when debit_account_id = ${contra.cardAdjustments} then amount_micro_usd
                                 else -amount_micro_usd end) filter (where kind = 'adjustment'), 0) as adjustments
        from transfer
      )
      select * from totals where balances <> credits - charges + reversals - debt_payments + adjustments`,
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
                 ('reversal', 'card_revenue', 'card'), ('reversal', 'prepaid_revenue', 'wallet'),
                 ('refund', 'debt', 'card_clearing'), ('refund_failed', 'card_clearing', 'card'),
                 ('dispute', 'debt', 'card_clearing'), ('dispute_won', 'card_clearing', 'card'),
                 ('debt_payment', 'card', 'debt'),
                 ('adjustment', 'card_adjustments', 'card'), ('adjustment', 'card', 'card_adjustments')
        ) named (kind, debit, credit)
        where named.kind = transfer.kind and named.debit = coalesce(debit.contra_name, debit.kind)
          and named.credit = coalesce(credit.contra_name, credit.kind))`,
  },
  {
    rule: "the wallets' balances are their deposits less the pending and posted spends that are not reversed",
    breaches: sql`
      with totals as (
        select (select coalesce(sum(balance_micro_usd), 0) from account where kind = 'wallet') as balances,
               (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'deposit' and state = 'posted')
                 as deposits,
               (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'spend' and state <> 'voided')
                 as spends,
               (select coalesce(sum(amount_micro_usd), 0) from transfer
                where kind = 'reversal' and debit_account_id = ${contra.prepaidRevenue}) as reversals
      )
      select * from totals where balances <> deposits - spends + reversals`,
  },
  {
    rule: 'a reversal gives back one posted charge or spend of a request, whole, once, and with its reason',
    breaches: sql`
      select coalesce(transfer.reference, reversal.transfer_id::text) as reversed, count(transfer.id) as reversals,
             sum(transfer.amount_micro_usd) as given_back, max(charge.amount_micro_usd) as charged
      from (select * from transfer where kind = 'reversal') transfer
      full join reversal on reversal.transfer_id::text = transfer.reference
      left join transfer charge on charge.id = reversal.transfer_id
      group by 1
      having count(transfer.id) <> 1 or count(charge.id) <> 1
          or bool_or(transfer.state <> 'posted' or charge.state <> 'posted' or charge.kind not in ('charge', 'spend')
                     or (transfer.debit_account_id, transfer.credit_account_id, transfer.amount_micro_usd)
                        is distinct from (charge.credit_account_id, charge.debit_account_id, charge.amount_micro_usd)
                     or exists (select from job where job.hold_id = charge.id))`,
  },
  {
    rule: 'the audio of an answer is kept for a spend that was captured',
    breaches: sql`
      select lost.id, hold_id, transfer.kind, transfer.state
      from lost_answer lost left join transfer on transfer.id = hold_id
      where transfer.kind is distinct from 'spend' or transfer.state is distinct from 'posted'`,
  },
  {
    rule: 'a nonce is spent if and only if a wallet was debited for it',
    breaches: sql`
      select coalesce(spend.debit_account_id, nonce.account_id) as account, nonce.spent_at, spend.id as spend
      from (select * from transfer where kind = 'spend') spend
      full join prepaid_nonce nonce
        on nonce.account_id = spend.debit_account_id and nonce.nonce = spend.reference
          and nonce.spent_at = spend.created_at and coalesce(nonce.hold_id, spend.id) = spend.id
      where spend.id is null
         or nonce.nonce is null and spend.created_at > now() - make_interval(hours => ${NONCE_RETENTION_HOURS}::int)`,
  },
];
