-- payments are of the network and asset that the database belongs to
select payment.id, payment.network, payment.asset, instance.network as own_network, instance.asset as own_asset
from x402_payment payment, instance
where (payment.network, payment.asset) is distinct from (instance.network, instance.asset);
