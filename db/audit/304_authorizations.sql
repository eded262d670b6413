-- each authorization on the chain pays for at most one payment
select network, asset, payer, nonce, count(*) as payments from x402_payment
group by network, asset, payer, nonce having count(*) > 1;
