import { join } from 'node:path';
import { decodePaymentResponseHeader, wrapFetchWithPayment } from '@x402/fetch';
import type { X402DepositResponse, X402PrepaidAccount } from '../../contract/types.ts';
import { formatUsd } from '../../lib/money.ts';
import type { Offered } from '../offered.ts';
import { type PrepaidCall, readMetadata, signPrepaid } from '../prepaid-signature.ts';
import type { UsdcSandbox } from '../running-sandbox.ts';
import { sandboxClient } from '../x402-client.ts';
import { saveSpeech, succeeded } from './demo-answer.ts';

/** Named before the text, encoded in several ways: what is signed is the canonical query. */
const query = (voice: string) =>
  `voice=${voice}&text=A+query+is%20signed%2C+however+it+was+%22encoded%22%3A+it%27s+the+same%21`;

const requests = ({ otherVoice, otherModel }: Offered): readonly (PrepaidCall & { readonly file: string })[] => [
  {
    method: 'POST',
    target: '/x402/tts',
    body: JSON.stringify({ text: 'This was paid from a balance, against a signature.' }),
    file: 'prepaid-post.mp3',
  },
  { method: 'GET', target: `/x402/tts?${query(otherVoice)}`, file: 'prepaid-get.mp3' },
  {
    method: 'POST',
    target: '/x402/tts',
    body: JSON.stringify({ text: 'This was spoken by the better model.', model: otherModel }),
    file: 'prepaid-hd.mp3',
  },
];

/** Deposits once, reads the balance, and spends it by three signed requests. */
export async function prepaid({ baseUrl, chain, payer }: UsdcSandbox, offered: Offered, folder: string): Promise<void> {
  const metadata = await readMetadata(baseUrl);
  const { depositEndpoint, minDepositMicroUsd } = metadata.prepaid;

  console.log('Prepaid x402: POST /x402/deposit, until the payment has 2 confirmations');
  const deposited = await wrapFetchWithPayment(fetch, sandboxClient(payer, chain.chainId))(depositEndpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ amountMicroUsd: minDepositMicroUsd }),
  });
  const { creditedMicroUsd } = (await (await succeeded(deposited)).json()) as X402DepositResponse;
  const receipt = decodePaymentResponseHeader(deposited.headers.get('payment-response') ?? '');
  console.log(`  credited ${formatUsd(BigInt(creditedMicroUsd))} USD for transaction ${receipt.transaction}`);

  console.log('Prepaid x402: GET /x402/accounts/{address}');
  const target = `/x402/accounts/${payer.address}`;
  const read = await fetch(`${baseUrl}${target}`, {
    headers: await signPrepaid(payer, metadata, { method: 'GET', target }),
  });
  const account = (await (await succeeded(read)).json()) as X402PrepaidAccount;
  console.log(`  ${account.address} has ${account.balanceUsd} USD`);

  for (const { file, ...call } of requests(offered)) {
    console.log(`Prepaid x402: ${call.method} /x402/tts`);
    const signed = await signPrepaid(payer, metadata, call);
    const { method, body = null } = call;
    const headers = { ...signed, ...(body !== null && { 'content-type': 'application/json' }) };
    const response = await fetch(`${baseUrl}${call.target}`, { method, headers, body });
    await saveSpeech(join(folder, file), response);
    const [charged, left] = ['x-x402-charged', 'x-x402-balance'].map((name) => BigInt(response.headers.get(name) ?? 0));
    console.log(`  charged ${formatUsd(charged as bigint)} USD, ${formatUsd(left as bigint)} USD left`);
  }
}
