-- A payment is identified by its authorization: (network, asset, payer, nonce), unique since 0005. Transaction and log
-- index are evidence. A reorganisation may move two transfers of one transaction, so that one of them lies where the other
-- was recorded.
alter table x402_payment drop constraint x402_payment_network_transaction_hash_log_index_key;
