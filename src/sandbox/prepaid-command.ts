/**
 * `npm run -s prepaid -- POST /x402/tts '{"text":"Hello"}'`: signs a request of the prepaid flow with the demo wallet of
 * the running sandbox, and prints it as a command for curl. Nothing is sent, but for the challenge of a deposit.
 */
import { x402HTTPClient } from '@x402/fetch';
import { type PrepaidCall, readMetadata, signPrepaid } from './prepaid-signature.ts';
import { runningSandbox, type UsdcSandbox, usdcParts } from './running-sandbox.ts';
import { sandboxClient } from './x402-client.ts';

const DEPOSIT = '/x402/deposit';

const [method = '', address = '', body] = process.argv.slice(2);
if (!/^(GET|POST)$/.test(method) || !address.startsWith('/x402/')) {
  fail(`Say what is to be signed: npm run -s prepaid -- POST /x402/tts '{"text":"Hello world"}'`);
}
const { pathname, search } = new URL(address, 'http://sandbox');
const usdc = usdcParts(await runningSandbox()) ?? fail('No chain can run here, so there is no wallet to sign with.');
const call: PrepaidCall = { method, target: `${pathname}${search}`, body };
const proof =
  pathname === DEPOSIT
    ? await depositPayment(usdc, call)
    : await signPrepaid(usdc.payer, await readMetadata(usdc.baseUrl), call);
console.log(curl(usdc.baseUrl, call, proof));

/** Asks for the deposit's challenge and signs it, as any x402 client does. */
async function depositPayment({ baseUrl, chain, payer }: UsdcSandbox, { body = '' }: PrepaidCall) {
  const client = new x402HTTPClient(sandboxClient(payer, chain.chainId));
  const headers = { 'content-type': 'application/json' };
  const asked = await fetch(`${baseUrl}${DEPOSIT}`, { method: 'POST', headers, body });
  if (asked.status !== 402) fail(`POST ${DEPOSIT} answered ${asked.status}: ${await asked.text()}`);
  const challenge = client.getPaymentRequiredResponse((name) => asked.headers.get(name));
  return client.encodePaymentSignatureHeader(await client.createPaymentPayload(challenge));
}

function curl(baseUrl: string, { method, target, body }: PrepaidCall, proof: Record<string, string>): string {
  const isSpeech = target.split('?', 1)[0] === '/x402/tts';
  // No two requests have the same nonce, so none overwrites the file of another.
  const file = isSpeech ? `prepaid-${proof['x-x402-nonce']?.slice(0, 8)}.mp3` : undefined;
  const options = [
    `curl -fsSg${file ? ` -o ${file} -D -` : ''}${method === 'POST' ? ' -X POST' : ''} ${quote(`${baseUrl}${target}`)}`,
    ...Object.entries(proof).map(([name, value]) => `-H ${quote(`${name.toLowerCase()}: ${value}`)}`),
    ...(body === undefined ? [] : ["-H 'content-type: application/json'", `--data-raw ${quote(body)}`]),
  ];
  return `${options.join(' \\\n  ')}${file ? ` \\\n  && echo 'The speech is in ${file}'` : ''}`;
}

/** One word for a POSIX shell, whatever it holds. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function fail(message: string): never {
  console.error(message);
  process.exit(1);
}
