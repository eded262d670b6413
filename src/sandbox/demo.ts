/**
 * `npm run demo`: uses a running sandbox as its callers would, each flow once: shows what was paid, and writes the MP3s
 * into DATA_DIR/demo.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from '@x402/fetch';
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { formatUsd } from '../money.ts';
import { usdcBalance } from './chain/fund.ts';
import { chainClient } from './chain/network.ts';
import { readSandboxFile, SANDBOX_FILE, type SandboxFile } from './sandbox-file.ts';

const dataDir = resolve(process.env.DATA_DIR ?? './data');
const folder = join(dataDir, 'demo');

const sandbox = await readSandboxFile(dataDir);
if (!sandbox) {
  console.error(`There is no ${join(dataDir, SANDBOX_FILE)}. Start the sandbox first: npm run sandbox`);
  process.exit(1);
}
await mkdir(folder, { recursive: true });
await card(sandbox);
await direct(sandbox);

async function card({ baseUrl, creditAccount }: SandboxFile): Promise<void> {
  console.log('Card credits: POST /tts');
  const response = await fetch(`${baseUrl}/tts`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-credit-account': creditAccount },
    body: JSON.stringify({ text: 'This was paid from a card credit account.', voice: 'provider-a_nova' }),
  });
  await save('card.mp3', response);
  console.log(`  left in the account: ${formatUsd(BigInt(response.headers.get('x-credit-balance') ?? 0))} USD`);
}

async function direct({ baseUrl, chain, wallet }: SandboxFile): Promise<void> {
  if (!chain || !wallet) {
    console.log('Direct x402: no chain can run here, so this flow is left out.');
    return;
  }
  const client = chainClient(chain.rpcUrl);
  const payer = privateKeyToAccount(wallet.privateKey as Hex);
  const x402 = new x402Client()
    .register(`eip155:${chain.chainId}`, new ExactEvmScheme(payer))
    .onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions ?? {}, `demo_${randomUUID()}`);
    });
  const pay = wrapFetchWithPayment(fetch, x402);
  const text = 'This was paid with one transfer of USDC.';
  const requests: [string, string, string, RequestInit][] = [
    ['GET /x402/tts', 'direct-get.mp3', `?${new URLSearchParams({ text, voice: 'provider-a_onyx' })}`, {}],
    [
      'POST /x402/tts',
      'direct-post.mp3',
      '',
      { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ text }) },
    ],
  ];
  for (const [name, file, query, init] of requests) {
    console.log(`Direct x402: ${name}`);
    const before = await usdcBalance(client, payer.address);
    const response = await pay(`${baseUrl}/x402/tts${query}`, init);
    await save(file, response);
    const receipt = decodePaymentResponseHeader(response.headers.get('payment-response') ?? '');
    const after = await usdcBalance(client, payer.address);
    console.log(`  paid ${formatUsd(before - after)} USDC in transaction ${receipt.transaction}`);
  }
}

/** Writes the audio of an answer; ends the demo when the answer is none. */
async function save(file: string, response: Response): Promise<void> {
  if (!response.ok) {
    console.error(`  answered ${response.status}: ${await response.text()}`);
    process.exit(1);
  }
  const audio = Buffer.from(await response.arrayBuffer());
  await writeFile(join(folder, file), audio);
  console.log(`  ${audio.length} bytes of speech in ${join(folder, file)}`);
}
