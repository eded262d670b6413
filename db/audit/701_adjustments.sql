-- each adjustment matches exactly one action of an operator
select adjustment.id, adjustment.amount_micro_usd as amount, action.id as action, action.subject, action.detail
from (select * from transfer where kind = 'adjustment') adjustment
full join (select * from operator_action where action = 'adjust') action on action.transfer_id = adjustment.id
where adjustment.id is null or action.id is null or action.key::text <> adjustment.reference
   or (action.detail ->> 'amountMicroUsd')::bigint is distinct from
      case action.subject when adjustment.credit_account_id::text then adjustment.amount_micro_usd
                          when adjustment.debit_account_id::text then -adjustment.amount_micro_usd end;
