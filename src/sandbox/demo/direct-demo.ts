import { join } from 'node:path';
import { decodePaymentResponseHeader, wrapFetchWithPayment } from '@x402/fetch';
import { formatUsd } from '../../lib/money.ts';
import { chainClient } from '../chain/chain-client.ts';
import { usdcBalance } from '../chain/fund.ts';
import type { Offered } from '../offered.ts';
import type { UsdcSandbox } from '../running-sandbox.ts';
import { sandboxClient } from '../x402-client.ts';
import { saveSpeech } from './demo-answer.ts';

/** Pays for each of two requests with a USDC payment of its own. */
export async function direct(
  { baseUrl, chain, payer }: UsdcSandbox,
  { otherVoice }: Offered,
  folder: string,
): Promise<void> {
  const client = chainClient(chain.rpcUrl);
  const pay = wrapFetchWithPayment(fetch, sandboxClient(payer, chain.chainId));
  const text = 'This was paid with one transfer of USDC.';
  const requests: [string, string, string, RequestInit][] = [
    ['GET /x402/tts', 'direct-get.mp3', `?${new URLSearchParams({ text, voice: otherVoice })}`, {}],
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
    await saveSpeech(join(folder, file), response);
    const receipt = decodePaymentResponseHeader(response.headers.get('payment-response') ?? '');
    const after = await usdcBalance(client, payer.address);
    console.log(`  paid ${formatUsd(before - after)} USDC in transaction ${receipt.transaction}`);
  }
}
