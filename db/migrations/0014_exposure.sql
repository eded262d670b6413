-- What a payer has under way before one payment of his (R21b). It is asked for in the statement that reserves the
-- payment, behind the lock that keeps the payer's reservations in order; that statement's own snapshot is older than the
-- lock. A volatile function sees what was committed by the time of its call.
create function x402_exposure(of_payer text, before_id bigint)
  returns table (unsettled bigint, running bigint, settling bigint, failed boolean) volatile language plpgsql as $$
begin
  return query
    select coalesce(sum(amount_micro_usd) filter (where awaited_transaction is null), 0)::bigint,
           count(*) filter (where state in ('reserved', 'settling')),
           count(*) filter (where state = 'settling' and awaited_transaction is null),
           exists (select from x402_payment where payer = of_payer and failed_at > now() - interval '1 hour')
    from x402_payment
    where payer = of_payer and id < before_id and state in ('reserved', 'settling', 'refused', 'unknown');
end $$;
