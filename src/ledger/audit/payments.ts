import { sql } from 'kysely';
import type { Invariant } from './invariant.ts';

export const paymentInvariants: readonly Invariant[] = [
  {
    rule: 'a checkout session is credited at most once, and only as a credited top-up of that amount',
    breaches: sql`
      select coalesce(transfer.reference, top_up.session_id) as session, count(transfer.id) as credits,
             sum(transfer.amount_micro_usd) as credited, max(top_up.amount_cents) as cents
      from (select * from transfer where kind = 'top_up') transfer
      full join top_up on top_up.session_id = transfer.reference
      where transfer.id is not null or top_up.state = 'credited'
      group by 1
      having count(transfer.id) <> 1 or bool_or(top_up.state is distinct from 'credited')
          or sum(transfer.amount_micro_usd) is distinct from max(top_up.amount_cents) * 10000::numeric`,
  },
  {
    rule: 'a settled payment has exactly one settlement of its amount, and no other payment has one',
    breaches: sql`
      select coalesce(transfer.reference, payment.id::text) as payment, max(payment.state) as state,
             count(transfer.id) as settlements, sum(transfer.amount_micro_usd) as settled,
             max(payment.amount_micro_usd) as amount
      from (select * from transfer where kind in ('settlement', 'deposit')) transfer
      full join x402_payment payment on payment.id::text = transfer.reference
      where transfer.id is not null or payment.state = 'settled'
      group by 1
      having count(transfer.id) <> 1 or max(payment.state) is distinct from 'settled'
          or bool_or(transfer.state <> 'posted')
          or bool_or((payment.purpose = 'deposit') <> (transfer.kind = 'deposit'))
          or sum(transfer.amount_micro_usd) is distinct from max(payment.amount_micro_usd)`,
  },
  {
    rule: 'a deposit is credited to the account of its payer',
    breaches: sql`
      select transfer.id, payment.payer, account.address from transfer
      join x402_payment payment on payment.id::text = transfer.reference
      left join account on account.id = transfer.credit_account_id
      where transfer.kind = 'deposit' and account.address is distinct from payment.payer`,
  },
  {
    rule: 'an authorization on the chain pays for one payment at most',
    breaches: sql`
      select network, asset, payer, nonce, count(*) as payments from x402_payment
      group by network, asset, payer, nonce having count(*) > 1`,
  },
  {
    rule: 'payments are of the network and asset that the database belongs to',
    breaches: sql`
      select payment.id, payment.network, payment.asset, instance.network as own_network, instance.asset as own_asset
      from x402_payment payment, instance
      where (payment.network, payment.asset) is distinct from (instance.network, instance.asset)`,
  },
];

export const purchaseInvariants: readonly Invariant[] = [
  {
    rule: 'a purchase is credited to the account that it is for',
    breaches: sql`
      select transfer.id, top_up.id as purchase, top_up.account_id as account, transfer.credit_account_id as credited
      from transfer join top_up on top_up.session_id = transfer.reference
      where transfer.kind = 'top_up' and transfer.credit_account_id <> top_up.account_id`,
  },
  {
    rule: 'top-ups, deposits, settlements, clawbacks and adjustments are posted when created',
    breaches: sql`
      select id, kind, state, amount_micro_usd as amount from transfer
      where kind not in ('charge', 'spend')
        and (state <> 'posted' or ended_at <> created_at or lease_until is not null)`,
  },
  {
    rule: 'a settlement or deposit has the trace id of its payment',
    breaches: sql`
      select transfer.id, payment.id as payment, payment.trace_id, transfer.trace_id as transfer_trace_id
      from x402_payment payment join transfer on transfer.reference = payment.id::text
      where transfer.kind in ('settlement', 'deposit') and transfer.trace_id <> payment.trace_id`,
  },
  {
    rule: 'hashes and addresses are in canonical form',
    breaches: sql`
      select id, network, transaction_hash, asset, payer, pay_to from x402_payment
      where length(transaction_hash) <> 66 or transaction_hash !~ '^0x[0-9a-f]+$'
         or (network, asset, payer, pay_to, nonce)
            <> (lower(network), lower(asset), lower(payer), lower(pay_to), lower(nonce))`,
  },
];

/** Refunds and disputes, and the debts they left (R61). Amounts are in micro-USD. */
export const debtInvariants: readonly Invariant[] = [
  {
    rule: 'each refund and dispute is booked once for each time that it was taken or returned, whole',
    breaches: sql`
      with turn as (
        select clawback.*, case when number = 1 then id else id || ':' || number end as reference,
               number < turns or state = 'returned' as is_returned
        from clawback cross join lateral generate_series(1, turns) number
      ), expected as (
        select kind, reference, id, account_id, amount_cents::bigint * 10000 as amount from turn
        union all
        select case kind when 'refund' then 'refund_failed' else 'dispute_won' end, reference, id, account_id,
               amount_cents::bigint * 10000
        from turn where is_returned
      ), booked as (
        select transfer.kind, transfer.reference, count(*) as times, min(amount_micro_usd) as amount,
               min(coalesce(debt.owner_id, credit_account_id)::text)::uuid as account_id
        from transfer left join account debt on debt.id = debit_account_id
        where transfer.kind in ('refund', 'refund_failed', 'dispute', 'dispute_won')
        group by transfer.kind, transfer.reference
      )
      select coalesce(expected.kind, booked.kind) as kind, coalesce(expected.reference, booked.reference) as reference,
             coalesce(expected.account_id, booked.account_id) as account, expected.amount as expected,
             booked.amount as booked, coalesce(times, 0) as times
      from expected full join booked using (kind, reference)
      where times is distinct from 1
         or (expected.amount, expected.account_id) is distinct from (booked.amount, booked.account_id)`,
  },
  {
    rule: 'a refund or dispute is one of a credited purchase, and of its account',
    breaches: sql`
      select clawback.id, clawback.account_id as account, top_up.account_id as purchase_of, top_up.state
      from clawback left join top_up on top_up.id = clawback.top_up_id
      where top_up.state is distinct from 'credited' or top_up.account_id <> clawback.account_id`,
  },
  {
    rule: 'what a refund or dispute took is known, or an operator decided about it, with its id in the reason',
    breaches: sql`
      select id, account_id as account, kind, status, amount_cents as amount, currency, state
      from clawback
      where (currency <> 'usd' or not is_status_known)
        and not exists (select from operator_action
                        where subject = account_id::text and strpos(reason, clawback.id) > 0)`,
  },
  {
    rule: 'an account is marked as indebted if and only if it owes something',
    breaches: sql`
      select coalesce(owner.id, debt.owner_id) as account, owner.is_indebted, debt.balance_micro_usd as debt
      from (select * from account where kind = 'card') owner
      full join (select * from account where kind = 'debt') debt on debt.owner_id = owner.id
      where owner.id is null or owner.is_indebted <> (coalesce(debt.balance_micro_usd, 0) > 0)`,
  },
  {
    rule: 'a debt is paid by the account that owes it',
    breaches: sql`
      select transfer.id, debit_account_id as payer, debt.owner_id as debtor
      from transfer join account debt on debt.id = credit_account_id
      where transfer.kind = 'debt_payment' and debt.owner_id is distinct from debit_account_id`,
  },
];
