import { sql } from 'kysely';
import type { Invariant } from './invariant.ts';

/** What operators gave and took, beside what they wrote down of it. */
export const adjustmentInvariants: readonly Invariant[] = [
  {
    rule: 'each adjustment is what an operator wrote down, once, for its account and amount',
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
