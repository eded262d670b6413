import type { Rule } from './rule.ts';

const PURPOSE = `case when flow = 'deposit' then 'deposit' else 'speech' end`;
const TOLD = `from told left join x402_payment payment on payment.payer = told.payer and payment.nonce = told.nonce
  and payment.state = 'settled' and payment.purpose = ${PURPOSE}
  where flow in ('direct', 'direct, quoted', 'deposit') and`;

/** Payments in USDC: compares callers, books and chain. */
export const PAYMENT_RULES: readonly Rule[] = [
  {
    kind: 'paid, not served',
    words: 'the payee has got USDC that no settled payment names',
    sql: `select told.id as told, received.transaction_hash || ' of ' || received.amount as detail
          from received left join told on told.payer = received.payer and told.nonce = received.nonce
          where not exists (select from x402_payment payment
            where payment.state = 'settled' and payment.transaction_hash = received.transaction_hash
              and payment.payer = received.payer and payment.nonce = received.nonce
              and payment.amount_micro_usd = received.amount)`,
  },
  {
    kind: 'served, not paid',
    words: 'a payment is booked as settled that is not on the chain',
    sql: `select told.id as told, 'payment ' || payment.id as detail
          from x402_payment payment left join told on told.payer = payment.payer and told.nonce = payment.nonce
          where payment.state = 'settled'
            and not exists (select from received where received.transaction_hash = payment.transaction_hash
              and received.payer = payment.payer and received.amount = payment.amount_micro_usd)`,
  },
  {
    kind: 'served, not paid',
    words: 'one authorization on the chain counts for more than one payment',
    sql: `select null::integer as told, nonce as detail from x402_payment where state = 'settled'
          group by payer, nonce having count(*) > 1`,
  },
  {
    kind: 'charged twice',
    words: 'one operation was paid more than once on the chain',
    sql: `select told.id as told, count(*) || ' transfers' as detail
          from told join received on received.payer = told.payer and received.nonce = told.nonce
          group by told.id having count(*) > 1`,
  },
  {
    kind: 'served, not paid',
    words: 'a caller was served or credited, and no payment of that amount is settled',
    sql: `select told.id as told, null as detail
          ${TOLD} ended = 'served' and payment.amount_micro_usd is distinct from told.amount`,
  },
  {
    kind: 'paid, not served',
    words: 'a caller was refused, or told nothing, and the payment is settled',
    sql: `select told.id as told, 'payment ' || payment.id as detail
          ${TOLD} ended in ('refused', 'open') and payment.id is not null`,
  },
  {
    kind: 'paid, not served',
    words: 'a settled payment belongs to no operation',
    sql: `select null::integer as told, 'payment ' || id as detail from x402_payment payment where state = 'settled'
          and not exists (select from told where told.payer = payment.payer and told.nonce = payment.nonce
            and (flow = 'deposit') = (purpose = 'deposit') and flow in ('direct', 'direct, quoted', 'deposit'))`,
  },
  {
    kind: 'other',
    words: 'a settled deposit is not credited exactly once',
    sql: `select told.id as told, count(transfer.id) || ' credits' as detail
          from x402_payment payment
            left join transfer on transfer.kind = 'deposit' and transfer.state = 'posted'
              and transfer.reference = payment.id::text and transfer.amount_micro_usd = payment.amount_micro_usd
            left join told on told.payer = payment.payer and told.nonce = payment.nonce
          where payment.state = 'settled' and payment.purpose = 'deposit'
          group by payment.id, told.id having count(transfer.id) <> 1`,
  },
];
