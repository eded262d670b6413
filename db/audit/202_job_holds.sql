-- the hold of each job has the state that fits the job's state, and the same fence number
select job.id, job.state, transfer.state as hold, job.fence, transfer.fence as hold_fence
from job left join transfer on transfer.id = job.hold_id
where job.fence is distinct from transfer.fence or transfer.lease_until is not null
   or transfer.debit_account_id is distinct from job.account_id
   or transfer.state is distinct from
      case job.state when 'completed' then 'posted' when 'failed' then 'voided' else 'pending' end;
