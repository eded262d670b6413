#!/usr/bin/env bash
# mppx 0.11.0 with openapi-fetch 0.17.0: a POST that has to be paid comes again as a paid GET without a body.
#
# openapi-fetch, like ky, calls fetch with a Request. For the paid call mppx takes the URL of the 402, headers of its
# own and the second argument of fetch: the method, body and signal of a Request are in none of these. The credential is
# right, so a path that sells GET too takes the money for something else. fetch(url, init) is repeated whole, and
# @x402/fetch clones a Request. The way out is to take the Request apart before mppx sees it.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund mppx@0.11.0 openapi-fetch@0.17.0 viem@2.57.1
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { evm, Fetch } from 'mppx/client';
import { Mppx, evm as server } from 'mppx/server';
import createClient from 'openapi-fetch';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';

const authorization = { name: 'USDC', version: '2' };
const offer = {
  authorization,
  chainId: 84532,
  currency: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  decimals: 6,
  recipient: '0x1111111111111111111111111111111111111111',
  x402: { facilitator: 'http://127.0.0.1:1' },
};
const mppx = Mppx.create({ methods: [server.charge(offer)], realm: 'speech', secretKey: 'a secret of at least 32 bytes for tests' });

let seen = [];
const shop = createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request) body += chunk;
  const scheme = request.headers.authorization?.split(' ')[0] ?? 'unpaid';
  seen.push(`${scheme} ${request.method} ${body || 'without a body'}`);
  if (scheme === 'Payment') return response.setHeader('content-type', 'application/json').end('{}');
  const { challenge } = await mppx.charge({ amount: '0.01' })(new Request('http://127.0.0.1/speech'));
  response.writeHead(402, Object.fromEntries(challenge.headers)).end();
}).listen(0, '127.0.0.1');
await once(shop, 'listening');
const baseUrl = `http://127.0.0.1:${shop.address().port}`;

const account = privateKeyToAccount(generatePrivateKey());
const fetchAndPay = Fetch.from({ methods: [evm.charge({ account, authorization })] });
const apart = async (request) => {
  const { url, method, headers, signal } = request;
  return fetchAndPay(url, { method, headers, signal, body: request.body === null ? undefined : await request.text() });
};
const body = { text: 'Hi' };
const calls = {
  'url and init': () => fetchAndPay(`${baseUrl}/speech`, { method: 'POST', body: JSON.stringify(body) }),
  'openapi-fetch': () => createClient({ baseUrl, fetch: fetchAndPay }).POST('/speech', { body }),
  'openapi-fetch, taken apart': () => createClient({ baseUrl, fetch: apart }).POST('/speech', { body }),
};
const found = {};
for (const [name, call] of Object.entries(calls)) {
  seen = [];
  const result = await call();
  assert.equal((result.response ?? result).status, 200);
  found[name] = seen;
}
shop.close();
shop.closeAllConnections();
console.log(found);
const whole = ['unpaid POST {"text":"Hi"}', 'Payment POST {"text":"Hi"}'];
assert.deepEqual(found, {
  'url and init': whole,
  'openapi-fetch': ['unpaid POST {"text":"Hi"}', 'Payment GET without a body'],
  'openapi-fetch, taken apart': whole,
});
JS
node run.mjs
