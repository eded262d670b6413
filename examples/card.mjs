import { readFile, writeFile } from 'node:fs/promises';
import { cardCredits, Speechgate } from 'speechgate/client';

const { baseUrl, creditAccount } = JSON.parse(await readFile('data/sandbox.json', 'utf8'));
const client = new Speechgate({ baseUrl, pay: cardCredits(creditAccount), maxPerRequestMicroUsd: 10_000n });
const speech = await client.speak({ text: 'Hello world, paid from card credit.' });
await writeFile('card.mp3', await speech.bytes());
console.log('card.mp3', speech.receipt);
