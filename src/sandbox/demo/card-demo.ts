import { join } from 'node:path';
import { formatUsd } from '../../lib/money.ts';
import type { Offered } from '../offered.ts';
import type { SandboxFile } from '../sandbox-file.ts';
import { saveSpeech } from './demo-answer.ts';

/** Speaks from the demo account's credit. */
export async function card({ baseUrl, creditAccount }: SandboxFile, { voice }: Offered, folder: string): Promise<void> {
  console.log('Card credits: POST /tts');
  const response = await fetch(`${baseUrl}/tts`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-credit-account': creditAccount },
    body: JSON.stringify({ text: 'This was paid from a card credit account.', voice }),
  });
  await saveSpeech(join(folder, 'card.mp3'), response);
  console.log(`  left in the account: ${formatUsd(BigInt(response.headers.get('x-credit-balance') ?? 0))} USD`);
}
