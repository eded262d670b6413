import { readFile, writeFile } from 'node:fs/promises';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { privateKeyToAccount } from 'viem/accounts';

const { baseUrl, wallet } = JSON.parse(await readFile('data/sandbox.json', 'utf8'));
// With real money, compare network, asset and payTo with the signed metadata before you sign: docs/api.md, "Trust".
// By default this client pays at most 1 USD. This covers every text, and the largest deposit.
const client = new x402Client()
  .register('eip155:8453', new ExactEvmScheme(privateKeyToAccount(wallet.privateKey)))
  .setSpendControls({ maxAmountPerPayment: '$100' })
  .onBeforePaymentCreation(async ({ paymentRequired }) => {
    appendPaymentIdentifierToExtensions(paymentRequired.extensions);
  });
const pay = wrapFetchWithPayment(fetch, client);

const response = await pay(`${baseUrl}/x402/tts?text=Hello+world`);
await writeFile('x402.mp3', Buffer.from(await response.arrayBuffer()));
console.log('x402.mp3', response.status, response.headers.get('x-payment-identifier'));
