import { sql } from 'kysely';
import type { Invariant } from './invariant.ts';

/** Money that came in, beside its purchases and payments. All amounts are in micro-USD. */
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
