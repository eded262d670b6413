-- each job has the trace id of the request that placed its hold
select job.id, job.hold_id, job.trace_id, transfer.trace_id as hold_trace_id
from job join transfer on transfer.id = job.hold_id
where transfer.trace_id <> job.trace_id;
