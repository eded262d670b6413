-- Which request a job's idempotency key came with, as it was sent: a repetition is known by it also when the catalog names
-- models, voices or defaults in another way by then. Earlier releases write none.
alter table job add column sent_hash bytea;
