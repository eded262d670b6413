/** Signs a prepaid request with the demo wallet and prints it for curl. It requests only a deposit's challenge. */
import { x402HTTPClient } from '@x402/fetch';
import type { LocalAccount } from 'viem';
import {
  fail,
  officialClient,
  type PrepaidCall,
  prepaidHeaders,
  readMetadata,
  runningSandbox,
  walletOf,
} from './running-sandbox.ts';

const DEPOSIT = '/x402/deposit';

const [method = '', address = '', body] = process.argv.slice(2);
if (!/^(GET|POST)$/.test(method) || !address.startsWith('/x402/')) {
  fail(
    `The arguments must be GET or POST, and a path below /x402/: npm run -s prepaid -- POST /x402/tts '{"text":"Hello world"}'`,
  );
}
const { pathname, search } = new URL(address, 'http://sandbox');
const sandbox = await runningSandbox();
const { baseUrl } = sandbox;
const wallet =
  walletOf(sandbox) ??
  fail(
    'This sandbox has no local chain, so no wallet can sign. The sandbox printed why when it started. Nothing was signed.',
  );
const call: PrepaidCall = { method, target: `${pathname}${search}`, body };
const proof =
  pathname === DEPOSIT
    ? await depositPayment(wallet, call)
    : await prepaidHeaders(wallet, await readMetadata(baseUrl), call);
console.log(curl(call, proof));

async function depositPayment(payer: LocalAccount, { body = '' }: PrepaidCall) {
  const client = new x402HTTPClient(officialClient(payer, sandbox));
  const headers = { 'content-type': 'application/json' };
  const asked = await fetch(`${baseUrl}${DEPOSIT}`, { method: 'POST', headers, body });
  if (asked.status !== 402)
    fail(
      `POST ${DEPOSIT} returned status ${asked.status}, not 402, so nothing was signed or paid. Correct the request: ${await asked.text()}`,
    );
  const challenge = client.getPaymentRequiredResponse((name) => asked.headers.get(name));
  return client.encodePaymentSignatureHeader(await client.createPaymentPayload(challenge));
}

function curl({ method, target, body }: PrepaidCall, proof: Record<string, string>): string {
  const isSpeech = target.split('?', 1)[0] === '/x402/tts';
  // Every nonce is new, so no file overwrites another.
  const file = isSpeech ? `prepaid-${proof['x-x402-nonce']?.slice(0, 8)}.mp3` : undefined;
  const options = [
    `curl -fsSg${file ? ` -o ${file} -D -` : ''}${method === 'POST' ? ' -X POST' : ''} ${quote(`${baseUrl}${target}`)}`,
    ...Object.entries(proof).map(([name, value]) => `-H ${quote(`${name.toLowerCase()}: ${value}`)}`),
    ...(body === undefined ? [] : ["-H 'content-type: application/json'", `--data-raw ${quote(body)}`]),
  ];
  return `${options.join(' \\\n  ')}${file ? ` \\\n  && echo 'The speech is in ${file}'` : ''}`;
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
