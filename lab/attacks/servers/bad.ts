/**
 * A server with a deliberate fault, for tests of the judge. BAD is the fault: `free` serves without settlement; `again`
 * settles, asks for a second payment and serves that; `swallow` settles and serves nothing; `error` returns 500; `hang`
 * never responds; `crash` exits.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { declarePaymentIdentifierExtension, PAYMENT_IDENTIFIER } from '@x402/extensions/payment-identifier';
import { ASSET, CHAIN_ID } from '../../../src/sandbox/chain/chain-client.ts';
import { audioOf } from './upstream.ts';

const { BAD, PORT, PAY_TO, PRICE = '$0', FACILITATOR_URL } = process.env;

const offer = {
  scheme: 'exact',
  network: `eip155:${CHAIN_ID}`,
  amount: String(Math.round(Number(PRICE.slice(1)) * 1e6)),
  asset: ASSET,
  payTo: PAY_TO,
  maxTimeoutSeconds: 120,
  extra: { name: 'USD Coin', version: '2' },
};

const paidOnce = new Set<string>();

createServer((request, response) => {
  void answer(request, response).catch(() => response.destroy());
}).listen(Number(PORT), '127.0.0.1');

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const header = request.headers['payment-signature'];
  if (typeof header !== 'string') return challenge(response);
  const { text } = JSON.parse(Buffer.concat(chunks).toString()) as { text: string };
  switch (BAD) {
    case 'hang':
      return;
    case 'crash':
      process.exit(1);
      break;
    case 'error':
      response.writeHead(500).end();
      return;
    case 'free':
      serve(response, audioOf(text));
      return;
    case 'swallow':
      await settle(header);
      response.writeHead(402).end();
      return;
    default:
      await settle(header);
      if (paidOnce.has(text)) return serve(response, audioOf(text));
      paidOnce.add(text);
      challenge(response);
  }
}

function challenge(response: ServerResponse): void {
  const required = {
    x402Version: 2,
    resource: { url: `http://127.0.0.1:${PORT}/${randomUUID()}` },
    accepts: [offer],
    extensions: { [PAYMENT_IDENTIFIER]: declarePaymentIdentifierExtension(true) },
  };
  const header = Buffer.from(JSON.stringify(required)).toString('base64');
  response.writeHead(402, { 'payment-required': header }).end();
}

function serve(response: ServerResponse, audio: Buffer): void {
  response.writeHead(200, { 'content-type': 'audio/mpeg', 'content-length': audio.length }).end(audio);
}

async function settle(header: string): Promise<void> {
  const paymentPayload = JSON.parse(Buffer.from(header, 'base64').toString());
  await fetch(`${FACILITATOR_URL}/settle`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ x402Version: 2, paymentPayload, paymentRequirements: offer }),
  });
}
