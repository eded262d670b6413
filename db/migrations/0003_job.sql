-- Asynchronous speech. The job is the truth about itself; a row of graphile_worker's queue only says that somebody
-- should look at it. The schema graphile_worker is migrated by that package.

-- A process that runs jobs. One whose heartbeat is old by this database's clock counts as dead.
create table worker (
  id uuid primary key,
  -- What graphile_worker's locks name as their holder.
  queue_pool text,
  heartbeat_at timestamptz not null default now()
);

create table job (
  id uuid primary key default gen_random_uuid(),
  state text not null default 'queued' check (state in ('queued', 'processing', 'completed', 'failed')),
  account_id uuid not null,
  -- The hold that pays for the job. It has no lease: it ends with the job, in the same transaction.
  hold_id bigint not null unique references transfer (id),
  -- The hold's fence. Whoever claims the job raises both; what an earlier owner still writes then finds another one.
  fence integer not null default 1,
  trace_id uuid not null,
  -- The utterance, with the provider's own names of model and voice. The text is erased when the job ends (R18).
  text text,
  model text not null,
  voice text not null,
  speed double precision not null,
  store_audio boolean not null,
  -- Idempotency (R17): the hash of the key, and of the request under that key.
  idempotency_key bytea,
  request_hash bytea,
  -- How often the job was claimed, for which each attempt at the provider counts.
  attempts integer not null default 0,
  -- A queued job is due from then on.
  run_at timestamptz not null default now(),
  worker_id uuid,
  error_code text,
  error_message text,
  mime_type text,
  size_bytes integer,
  -- From then on stored audio is no longer served; it is deleted soon after.
  audio_expires_at timestamptz,
  audio_deleted boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  started_at timestamptz,
  completed_at timestamptz,
  check ((state = 'processing') = (worker_id is not null)),
  check ((state in ('queued', 'processing')) = (text is not null)),
  check ((state in ('completed', 'failed')) = (completed_at is not null)),
  check ((state = 'failed') = (error_code is not null and error_message is not null)),
  check ((state = 'completed') = (mime_type is not null and size_bytes is not null)),
  check ((idempotency_key is null) = (request_hash is null)),
  check (store_audio or audio_expires_at is null)
);
create unique index job_idempotency on job (account_id, idempotency_key) where idempotency_key is not null;
create index job_queued on job (run_at) where state = 'queued';
create index job_processing on job (worker_id) where state = 'processing';
create index job_audio on job (audio_expires_at) where audio_expires_at is not null and not audio_deleted;
