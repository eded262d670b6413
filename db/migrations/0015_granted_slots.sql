-- How many slots the latest attempts got: those of one statement, which may be several.
alter table rate_window add column granted integer not null default 0;
