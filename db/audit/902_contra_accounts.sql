-- the ledger has exactly the contra accounts that the service defines
select coalesce(found.name, expected.name) as account, found.name is not null as found
from (select id || ' ' || contra_name as name from account where kind = 'contra') found
full join (
  values ('00000000-0000-4000-8000-000000000001 card_clearing'),
         ('00000000-0000-4000-8000-000000000002 card_revenue'),
         ('00000000-0000-4000-8000-000000000003 usdc_clearing'),
         ('00000000-0000-4000-8000-000000000004 usdc_revenue'),
         ('00000000-0000-4000-8000-000000000005 prepaid_revenue'),
         ('00000000-0000-4000-8000-000000000006 card_adjustments')
) expected (name) on expected.name = found.name
where found.name is null or expected.name is null;
