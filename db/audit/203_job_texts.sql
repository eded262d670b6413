-- each unfinished job has its text, and no finished job has a text
select id, state from job where (state in ('completed', 'failed')) = (text is not null);
