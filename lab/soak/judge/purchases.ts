import type { Rule } from './rule.ts';

const MICRO_USD_PER_CENT = 10_000;
const BOUGHT = `('top-up', 'refund', 'dispute')`;
const CREDITS = `
  select session.id, is_paid, cents, count(transfer.id) as credits, max(transfer.amount_micro_usd) as amount
  from session left join transfer on transfer.kind = 'top_up' and transfer.reference = session.id
  group by session.id, is_paid, cents`;
const TOLD = `(select min(told.id) from told where told.session_id = found.id) as told`;

/** Credit bought by card, and refunds and disputes: compares callers, books and processor. */
export const PURCHASE_RULES: readonly Rule[] = [
  {
    kind: 'paid, not served',
    words: 'a session is paid at the processor, and not credited',
    sql: `select ${TOLD}, found.id as detail from (${CREDITS}) found where is_paid and credits = 0`,
  },
  {
    kind: 'served, not paid',
    words: 'a session is credited more than once',
    sql: `select ${TOLD}, found.id || ': ' || credits as detail from (${CREDITS}) found where credits > 1`,
  },
  {
    kind: 'other',
    words: 'another amount is credited than the processor has got',
    sql: `select ${TOLD}, found.id || ': ' || amount as detail from (${CREDITS}) found
          where credits = 1 and amount <> cents::bigint * ${MICRO_USD_PER_CENT}`,
  },
  {
    kind: 'served, not paid',
    words: 'credit was booked that is not paid at the processor',
    sql: `select null::integer as told, reference as detail from transfer
          where kind = 'top_up' and not exists (select from session where session.id = reference and is_paid)`,
  },
  {
    kind: 'other',
    words: 'a buyer has paid at the processor or was told of a credit, and session and account are not so',
    sql: `select told.id as told, told.session_id as detail
          from told left join session on session.id = told.session_id
            left join transfer on transfer.kind = 'top_up' and transfer.reference = told.session_id
          where flow in ${BOUGHT} and told.session_id is not null
            and (session.is_paid is not true or told.amount <> session.cents::bigint * ${MICRO_USD_PER_CENT}
              or told.payer is not null and transfer.credit_account_id::text is distinct from told.payer)`,
  },
  {
    kind: 'other',
    words: 'books and processor differ in what was refunded or disputed',
    sql: `select ${TOLD}, found.id || ': ' || booked || ' cents instead of ' || taken_back_cents as detail
          from (select session.id, taken_back_cents, coalesce(sum(clawback.amount_cents) filter (where clawback.state = 'taken'), 0) as booked
            from session left join top_up on top_up.session_id = session.id
              left join clawback on clawback.top_up_id = top_up.id
            group by session.id, taken_back_cents) found
          where booked <> taken_back_cents`,
  },
];
