/** Buys in every way with the package for callers, in Node.js and in a page. `settings` is defined by who runs it. */
import { cardCredits, Speechgate } from '@speechgate/client';
import * as x402 from '@speechgate/client/x402';
import { privateKeyToAccount } from 'viem/accounts';

const { baseUrl, creditAccount, wallet, trust } = globalThis.settings;
const order = { text: 'Hello world' };

async function buy(name, client, options) {
  const speech = await client.speak(order, options);
  const { length } = await speech.bytes();
  const { flow, chargedMicroUsd } = speech.receipt;
  console.log(`${name}: ${flow}, ${chargedMicroUsd} micro-USD, ${length > 4000 ? 'audio' : 'too short'}`);
}

const small = new Speechgate({ baseUrl, pay: cardCredits(creditAccount), maxPerRequestMicroUsd: 10_000n });
await buy('small', small);
await buy('small job', small, { durable: true });
console.log(`top-up: ${small.topUpLink({ account: creditAccount })}`);

const open = (pay) => new x402.Speechgate({ baseUrl, trust, pay, maxPerRequestMicroUsd: 10_000n });
const card = open(x402.cardCredits(creditAccount));
await buy('card', card);
await buy('job', card, { durable: true });

const account = privateKeyToAccount(wallet.privateKey);
await buy('direct', open(x402.directX402(account)));
await buy('quoted', open(x402.directX402(account, { quoteFirst: true })));
const prepaid = open(x402.prepaid(account));
const { creditedMicroUsd } = await prepaid.deposit(100_000n);
console.log(`deposit: ${creditedMicroUsd} micro-USD`);
await buy('prepaid', prepaid);
console.log('done');
