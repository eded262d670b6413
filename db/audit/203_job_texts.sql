-- a finished job has no text (R18), and an unfinished one has
select id, state from job where (state in ('completed', 'failed')) = (text is not null);
