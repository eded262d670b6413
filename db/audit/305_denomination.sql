-- each USDC payment uses the network and asset of this database
select payment.id, payment.network, payment.asset, instance.network as own_network, instance.asset as own_asset
from x402_payment payment, instance
where (payment.network, payment.asset) is distinct from (instance.network, instance.asset);
