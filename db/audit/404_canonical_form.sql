-- hashes and addresses of payments are complete and in lower case
select id, network, transaction_hash, asset, payer, pay_to from x402_payment
where length(transaction_hash) <> 66 or transaction_hash !~ '^0x[0-9a-f]+$'
   or (network, asset, payer, pay_to, nonce)
      <> (lower(network), lower(asset), lower(payer), lower(pay_to), lower(nonce));
