/** `npm run demo`: buys speech from a running sandbox by each flow, and writes the MP3s to DATA_DIR/demo. */
import { join } from 'node:path';
import { decodePaymentResponseHeader, wrapFetchWithPayment } from '@x402/fetch';
import type { LocalAccount } from 'viem';
import type { X402DepositResponse, X402PrepaidAccount } from '../contract/types.ts';
import { formatUsd } from '../lib/money.ts';
import { ownSubfolder, replaceOwnFile } from '../lib/private-files.ts';
import { chainClient } from './chain/chain-client.ts';
import { usdcBalance } from './chain/fund.ts';
import { readOffered } from './instructions.ts';
import {
  fail,
  officialClient,
  type PrepaidCall,
  prepaidHeaders,
  readMetadata,
  runningSandbox,
  walletOf,
} from './running-sandbox.ts';
import { dataDir } from './sandbox-file.ts';

const JSON_TYPE = { 'content-type': 'application/json' };

const folder = join(dataDir, 'demo');
const sandbox = await runningSandbox();
const { baseUrl, creditAccount } = sandbox;
await ownSubfolder(folder);
const { voice, otherVoice, otherModel } = await readOffered(baseUrl);

await payByCard();
const wallet = walletOf(sandbox);
if (wallet) {
  await payDirectly(wallet);
  await payFromBalance(wallet);
} else {
  console.log(
    'Direct and prepaid x402 are skipped, because this sandbox has no local chain. The sandbox printed why when it started.',
  );
}

async function payByCard(): Promise<void> {
  console.log('Card credits: POST /tts');
  const response = await fetch(`${baseUrl}/tts`, {
    method: 'POST',
    headers: { ...JSON_TYPE, 'x-credit-account': creditAccount },
    body: JSON.stringify({ text: 'This was paid from a card credit account.', voice }),
  });
  await saveSpeech('card.mp3', response);
  console.log(`  left in the account: ${usd(response.headers.get('x-credit-balance'))} USD`);
}

async function payDirectly(payer: LocalAccount): Promise<void> {
  const pay = wrapFetchWithPayment(fetch, officialClient(payer, sandbox));
  const client = chainClient(sandbox.chain?.rpcUrl ?? '');
  const text = 'This was paid with one transfer of USDC.';
  const requests: [string, string, string, RequestInit][] = [
    ['GET', 'direct-get.mp3', `?${new URLSearchParams({ text, voice: otherVoice })}`, {}],
    ['POST', 'direct-post.mp3', '', { method: 'POST', headers: JSON_TYPE, body: JSON.stringify({ text }) }],
  ];
  for (const [method, file, query, init] of requests) {
    console.log(`Direct x402: ${method} /x402/tts`);
    const before = await usdcBalance(client, payer.address);
    const response = await pay(`${baseUrl}/x402/tts${query}`, init);
    await saveSpeech(file, response);
    const paid = before - (await usdcBalance(client, payer.address));
    console.log(`  paid ${usd(paid)} USDC in transaction ${transactionOf(response)}`);
  }
}

async function payFromBalance(payer: LocalAccount): Promise<void> {
  const metadata = await readMetadata(baseUrl);
  const { depositEndpoint, minDepositMicroUsd } = metadata.prepaid;
  const send = async (call: PrepaidCall) => {
    const { method, target, body = null } = call;
    const headers = { ...(await prepaidHeaders(payer, metadata, call)), ...(body !== null && JSON_TYPE) };
    return fetch(`${baseUrl}${target}`, { method, headers, body });
  };

  console.log('Prepaid x402: POST /x402/deposit, which waits for 2 confirmations');
  const deposited = await wrapFetchWithPayment(fetch, officialClient(payer, sandbox))(depositEndpoint, {
    method: 'POST',
    headers: JSON_TYPE,
    body: JSON.stringify({ amountMicroUsd: minDepositMicroUsd }),
  });
  const { creditedMicroUsd } = await readJson<X402DepositResponse>(deposited);
  console.log(`  credited ${usd(creditedMicroUsd)} USD for transaction ${transactionOf(deposited)}`);

  console.log('Prepaid x402: GET /x402/accounts/{address}');
  const read = await send({ method: 'GET', target: `/x402/accounts/${payer.address}` });
  const account = await readJson<X402PrepaidAccount>(read);
  console.log(`  ${account.address} has ${account.balanceUsd} USD`);

  const query = `voice=${otherVoice}&text=A+query+is%20signed%2C+however+it+was+%22encoded%22%3A+it%27s+the+same%21`;
  const post = (request: object) => ({ method: 'POST', target: '/x402/tts', body: JSON.stringify(request) });
  const requests: [file: string, call: PrepaidCall][] = [
    ['prepaid-post.mp3', post({ text: 'This was paid from a balance, against a signature.' })],
    ['prepaid-get.mp3', { method: 'GET', target: `/x402/tts?${query}` }],
    ['prepaid-hd.mp3', post({ text: 'This was spoken by the better model.', model: otherModel })],
  ];
  for (const [file, call] of requests) {
    console.log(`Prepaid x402: ${call.method} /x402/tts`);
    const response = await send(call);
    await saveSpeech(file, response);
    const [charged, left] = ['x-x402-charged', 'x-x402-balance'].map((name) => usd(response.headers.get(name)));
    console.log(`  charged ${charged} USD, ${left} USD left`);
  }
}

function usd(microUsd: string | number | bigint | null): string {
  return formatUsd(BigInt(microUsd ?? 0));
}

function transactionOf({ headers }: Response): string {
  return decodePaymentResponseHeader(headers.get('payment-response') ?? '').transaction;
}

async function assertSuccess(response: Response): Promise<void> {
  if (!response.ok) fail(`  The request failed with status ${response.status}: ${await response.text()}`);
}

async function readJson<Body>(response: Response): Promise<Body> {
  await assertSuccess(response);
  return (await response.json()) as Body;
}

async function saveSpeech(name: string, response: Response): Promise<void> {
  await assertSuccess(response);
  const file = join(folder, name);
  const audio = Buffer.from(await response.arrayBuffer());
  await replaceOwnFile(file, audio);
  console.log(`  ${audio.length} bytes of speech in ${file}`);
}
