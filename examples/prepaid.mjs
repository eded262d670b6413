import { readFile, writeFile } from 'node:fs/promises';
import { prepaid, Speechgate } from 'speechgate/client';
import { privateKeyToAccount } from 'viem/accounts';

const { baseUrl, wallet } = JSON.parse(await readFile('data/sandbox.json', 'utf8'));
const trust = JSON.parse(await readFile('data/trust.json', 'utf8'));
const client = new Speechgate({ baseUrl, trust, pay: prepaid(privateKeyToAccount(wallet.privateKey)) });
if ((await client.balance()).balanceMicroUsd < 10_000n) await client.deposit(100_000n);
const speech = await client.speak({ text: 'Hello world, paid by a signature.' }, { maxMicroUsd: 10_000n });
await writeFile('prepaid.mp3', await speech.bytes());
console.log('prepaid.mp3', speech.receipt);
