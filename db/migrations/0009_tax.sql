-- The tax that the processor added to a purchase: paid beside the credit, which amount_cents tells.
alter table top_up add column tax_cents integer not null default 0;
