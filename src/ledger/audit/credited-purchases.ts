import { sql } from 'kysely';
import type { Invariant } from './invariant.ts';

/** Purchases of credit, and payments by authorization, beside their transfers. */
export const purchaseInvariants: readonly Invariant[] = [
  {
    rule: 'a purchase is credited to the account that it is for',
    breaches: sql`
      select transfer.id, top_up.id as purchase, top_up.account_id as account, transfer.credit_account_id as credited
      from transfer join top_up on top_up.session_id = transfer.reference
      where transfer.kind = 'top_up' and transfer.credit_account_id <> top_up.account_id`,
  },
  {
    rule: 'money that came in, was taken back or was adjusted is posted at once',
    breaches: sql`
      select id, kind, state, amount_micro_usd as amount from transfer
      where kind not in ('charge', 'spend')
        and (state <> 'posted' or ended_at <> created_at or lease_until is not null)`,
  },
  {
    rule: 'what a payment has moved names the request that made the payment',
    breaches: sql`
      select transfer.id, payment.id as payment, payment.trace_id, transfer.trace_id as transfer_trace_id
      from x402_payment payment join transfer on transfer.reference = payment.id::text
      where transfer.kind in ('settlement', 'deposit') and transfer.trace_id <> payment.trace_id`,
  },
  {
    rule: 'hash and addresses of a payment are written in their one form',
    breaches: sql`
      select id, network, transaction_hash, asset, payer, pay_to from x402_payment
      where length(transaction_hash) <> 66 or transaction_hash !~ '^0x[0-9a-f]+$'
         or (network, asset, payer, pay_to, nonce)
            <> (lower(network), lower(asset), lower(payer), lower(pay_to), lower(nonce))`,
  },
];
