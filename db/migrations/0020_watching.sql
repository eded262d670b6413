-- What operators watch: what the last audits came to, and how a request's trace goes on in the job that it queued.

-- The last audit of each kind: of the books alone, or of the books held against processor and chain.
create table audit_result (
  kind text primary key check (kind in ('books', 'outside')),
  ended_at timestamptz not null default now(),
  -- 0: every rule held.
  broken_rules integer not null check (broken_rules >= 0)
);

-- The request's place in a trace, as W3C Trace Context writes it; null while nothing is traced. The job's attempts go on
-- from there, in whichever process.
alter table job add column traceparent text;
