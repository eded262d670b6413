-- Asynchronous speech. The job is the truth about itself; a row of graphile_worker's queue only says that somebody
-- should look at it. The schema graphile_worker is migrated by that package.
create table job (
  id uuid primary key default gen_random_uuid(),
  state text not null default 'queued' check (state in ('queued', 'processing', 'completed', 'failed')),
  account_id uuid not null,
  -- The hold that pays for the job. It has no lease: it ends with the job, in the same transaction.
  hold_id uuid not null unique references transfer (id),
  -- The hold's fence. Whoever claims the job raises both; what an earlier owner still writes then finds another one.
  fence integer not null default 1,
  -- A job that is processed is its worker's until then. It is renewed, so that it soon ends when the worker dies.
  lease_until timestamptz,
  trace_id uuid not null,
  -- The request's place in a trace, as W3C Trace Context writes it; null while nothing is traced.
  traceparent text,
  -- The utterance, with the provider's own names of model and voice. The text is erased when the job ends (R18).
  text text,
  model text not null,
  voice text not null,
  speed double precision not null,
  store_audio boolean not null,
  -- Idempotency (R17): hashes of the key, of the request as it is spoken, and of the request as it was sent.
  idempotency_key bytea,
  request_hash bytea,
  sent_hash bytea,
  -- How often the job was claimed, for which each attempt at the provider counts.
  attempts integer not null default 0,
  -- A queued job is due from then on.
  run_at timestamptz not null default now(),
  -- How many jobs of its account a job had before it when it was accepted, which is its place in the queue: the first
  -- jobs of all accounts come before the second ones. 0 once it has waited so long that it goes by its age.
  turn smallint not null default 0,
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
  check ((state = 'processing') = (lease_until is not null)),
  check ((state in ('queued', 'processing')) = (text is not null)),
  check ((state in ('completed', 'failed')) = (completed_at is not null)),
  check ((state = 'failed') = (error_code is not null and error_message is not null)),
  check ((state = 'completed') = (mime_type is not null and size_bytes is not null)),
  check ((idempotency_key is null) = (request_hash is null))
);

-- The parts of a text that is spoken in several requests. Their audio is that of the job, and is deleted with it; when the
-- job fails, or its audio is not to be kept, as soon as it ends.
create table job_segment (
  job_id uuid not null references job (id) on delete cascade,
  number integer not null,
  characters integer not null,
  -- The job's fence of whoever stored the audio, or began to.
  fence integer,
  -- Null until the audio is stored.
  spoken_at timestamptz,
  size_bytes integer not null default 0,
  frames integer not null default 0,
  -- The first four bytes of its first frame; null without a word to speak.
  frame_header bytea,
  upstream text,
  cost_pico_usd bigint,
  -- When its words are spoken, if its upstream told: of each the offset in characters, and start and end in seconds.
  words jsonb not null default '[]',
  primary key (job_id, number)
);

create unique index job_idempotency on job (account_id, idempotency_key) where idempotency_key is not null;
create index job_queued on job (run_at) where state = 'queued';
create index job_processing on job (lease_until) where state = 'processing';
create index job_live on job (account_id) where state in ('queued', 'processing');
create index job_audio on job (audio_expires_at) where audio_expires_at is not null and not audio_deleted;
-- When a job that waits goes by its age: two minutes for each turn (src/jobs/turn.ts).
create index job_by_age on job ((run_at at time zone 'utc' + turn * interval '120 seconds'))
  where state = 'queued' and turn > 0;

create trigger job_terms after update of id, account_id, hold_id, trace_id on job for each row
  execute function refuse_change('a job keeps its account and its hold');
create trigger job_due after insert or update of run_at on job for each row
  when (new.run_at > now() + interval '1 day')
  execute function refuse_change('a job is due within a day');
create trigger job_kept before delete on job for each row when (old.state in ('queued', 'processing'))
  execute function refuse_change('a job that lives is not deleted');
