#!/usr/bin/env bash
# @x402/core 2.27.0: a new x402Client signs at most 1 USD, and only in tokens that it knows.
#
# A payment of 1.000001 USDC on Base is refused before anything is signed, and so is one millionth of a test token on a
# local chain. The error comes from the client: the server never hears of it. setSpendControls({ maxAmountPerPayment: '5' })
# raises the first limit only; setSpendControls(false) ends both. Examples that pay more have to call it.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund @x402/core@2.27.0 @x402/evm@2.27.0 viem@2.57.1
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { x402Client } from '@x402/core/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';

const account = privateKeyToAccount(generatePrivateKey());
const base = { network: 'eip155:8453', asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913', name: 'USD Coin' };
const local = { network: 'eip155:31337', asset: account.address, name: 'Test Coin' };

async function pay({ network, asset, name }, amount, controls) {
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account));
  if (controls !== undefined) client.setSpendControls(controls);
  const accepted = {
    scheme: 'exact', network, asset, amount, payTo: account.address, maxTimeoutSeconds: 60, extra: { name, version: '2' },
  };
  const required = { x402Version: 2, resource: { url: 'https://example.com/' }, accepts: [accepted] };
  return client.createPaymentPayload(required).then(() => 'signed', ({ message }) => message.slice(0, 78));
}

const seen = {
  '1.000000 on Base': await pay(base, '1000000'),
  '1.000001 on Base': await pay(base, '1000001'),
  '1.000001 on Base, at most 5': await pay(base, '1000001', { maxAmountPerPayment: '5' }),
  '0.000001 on a local chain': await pay(local, '1'),
  '0.000001 on a local chain, at most 5': await pay(local, '1', { maxAmountPerPayment: '5' }),
  '0.000001 on a local chain, no controls': await pay(local, '1', false),
};
console.log(seen);
assert.deepEqual(seen, {
  '1.000000 on Base': 'signed',
  '1.000001 on Base': 'All payment requirements were rejected by spendControls.maxAmountPerPayment ($',
  '1.000001 on Base, at most 5': 'signed',
  '0.000001 on a local chain': 'All payment requirements were rejected by spendControls: only default assets o',
  '0.000001 on a local chain, at most 5': 'All payment requirements were rejected by spendControls: only default assets o',
  '0.000001 on a local chain, no controls': 'signed',
});
JS
node run.mjs
