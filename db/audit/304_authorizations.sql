-- an authorization on the chain pays for one payment at most
select network, asset, payer, nonce, count(*) as payments from x402_payment
group by network, asset, payer, nonce having count(*) > 1;
