-- Accounts take turns in the queue, workers name the jobs that they have, and a reconciler's turn is a lease.

-- How many jobs of its account a job had before it when it was accepted, which is its place in the queue: the first jobs
-- of all accounts come before the second ones. 0 once it has waited so long that it goes by its age.
alter table job add column turn smallint not null default 0;
create index job_live on job (account_id) where state in ('queued', 'processing');

-- What a worker has in hand as of its last heartbeat: jobs it has claimed, or is about to, and entries of the queue. What
-- it took before `named_since` and doesn't name is lost: the answer that gave it never arrived.
alter table worker
  add column job_ids uuid[],
  add column entry_ids bigint[],
  -- The heartbeat before the last one, by this database's clock; its answer had come when the names were gathered.
  add column named_since timestamptz;

-- Who is in a reconciler's turn, and until when nobody else may begin one.
alter table reconciler
  add column owner uuid,
  add column lease_until timestamptz,
  add constraint reconciler_lease_check check ((owner is null) = (lease_until is null));

-- Purchases that came to nothing, and feedback, are deleted when they are old.
create index top_up_expired on top_up (created_at) where state = 'expired';
