-- A lease that lies further ahead than its own length does not bind: the database's clock has stepped back.

-- `clock_timestamp()` is never behind the `now()` of whoever took the lease, however long a statement has waited for them.
create function lease_has_ended(lease_until timestamptz, length_seconds double precision) returns boolean
  volatile language sql as
  'select lease_until < now() or lease_until > clock_timestamp() + make_interval(secs => length_seconds)';

-- How long the hold's lease is; null for holds of earlier releases, and of jobs.
alter table transfer add column lease_seconds real;
