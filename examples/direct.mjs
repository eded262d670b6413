import { readFile, writeFile } from 'node:fs/promises';
import { directX402, Speechgate } from 'speechgate/client';
import { privateKeyToAccount } from 'viem/accounts';

const { baseUrl, wallet } = JSON.parse(await readFile('data/sandbox.json', 'utf8'));
const trust = JSON.parse(await readFile('data/trust.json', 'utf8'));
const pay = directX402(privateKeyToAccount(wallet.privateKey));
const client = new Speechgate({ baseUrl, pay, trust, maxPerRequestMicroUsd: 10_000n });
const speech = await client.speak({ text: 'Hello world, paid by a transfer of USDC.' });
await writeFile('direct.mp3', await speech.bytes());
console.log('direct.mp3', speech.receipt);
