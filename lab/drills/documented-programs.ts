import assert from 'node:assert/strict';
import { blocksOf } from '../../test/support/documentation.ts';

const READ = `
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { cardCredits, OverCapError, prepaid, Speechgate } from 'speechgate/client';
import { createWalletClient, custom } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
const read = async (name) => JSON.parse(await readFile('data/' + name + '.json', 'utf8'));
const { baseUrl, creditAccount, wallet: demo } = await read('sandbox');
const trust = await read('trust');`;

/** What stands around a block of docs/clients.md that is no program by itself, by what it begins with. */
const AROUND: Readonly<Record<string, readonly [before: string, after: string]>> = {
  'import { openFileBudget }': [
    'const pay = cardCredits(creditAccount);',
    `
await (await client.speak({ text: 'Hello' })).bytes();
assert.equal((await budget.read()).spentMicroUsd, 90n);
await assert.rejects(client.speak({ text: 'a'.repeat(600) }), OverCapError);`,
  ],
  'const [address] =': [
    `
const account = privateKeyToAccount(demo.privateKey);
const request = async ({ method, params }) =>
  method === 'eth_requestAccounts' ? [account.address] : account.signTypedData(JSON.parse(params[1]));
const walletClient = createWalletClient({ transport: custom({ request }) });`,
    `
const client = new Speechgate({ baseUrl, trust, pay: prepaid(wallet) });
assert.equal((await client.speak({ text: 'Hello' })).receipt.chargedMicroUsd, 90n);`,
  ],
};

/** Programs of the blocks of docs/clients.md that quote no example. */
export async function documentedPrograms(): Promise<string[]> {
  const blocks = (await blocksOf('docs/clients.md')).map(({ code }) => code);
  return Object.entries(AROUND).map(([beginning, [before, after]]) => {
    const code = blocks.find((block) => block.startsWith(beginning)) ?? assert.fail(`no block has ${beginning}`);
    return [READ, before, code, after].join('\n');
  });
}
