-- a job's hold is pending while it lives, posted when it is completed, voided when it failed, and has its fence
select job.id, job.state, transfer.state as hold, job.fence, transfer.fence as hold_fence
from job left join transfer on transfer.id = job.hold_id
where job.fence is distinct from transfer.fence or transfer.lease_until is not null
   or transfer.debit_account_id is distinct from job.account_id
   or transfer.state is distinct from
      case job.state when 'completed' then 'posted' when 'failed' then 'voided' else 'pending' end;
