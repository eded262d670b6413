#!/usr/bin/env bash
# @x402/fetch 2.27.0: wrapFetchWithPayment works with the global fetch only, not with undici 7.30.2's or node-fetch 3.3.2's.
#
# Those two are what a program imports that needs a proxy, a longer timeout or its own agent. The wrapper makes a global
# Request of its arguments and passes that object on; other implementations know only their own class and take it for a
# URL: "Failed to parse URL from [object Request]" or "Invalid URL", at the first call, free ones too, though
# each works alone. Give the wrapper a function that takes the Request apart, as `apart` below does for undici.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund @x402/fetch@2.27.0 @x402/core@2.27.0 undici@7.30.2 node-fetch@3.3.2
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { x402Client } from '@x402/core/client';
import { wrapFetchWithPayment } from '@x402/fetch';
import nodeFetch from 'node-fetch';
import { fetch as undiciFetch } from 'undici';

/** A service that asks for no payment and repeats what it is sent. */
const server = createServer((request, response) => request.pipe(response)).listen(0, '127.0.0.1');
await once(server, 'listening');
const url = `http://127.0.0.1:${server.address().port}/`;

const apart = async (request) => {
  const { method, headers, signal } = request;
  const body = request.body ? await request.arrayBuffer() : undefined;
  return undiciFetch(request.url, { method, headers: [...headers], signal, body });
};
const outcome = async (fetch) => {
  try {
    const response = await wrapFetchWithPayment(fetch, new x402Client())(url, { method: 'POST', body: 'Hello' });
    return `${response.status} ${await response.text()}`;
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};
const seen = {
  global: await outcome(fetch),
  undici: await outcome(undiciFetch),
  'node-fetch': await outcome(nodeFetch),
  apart: await outcome(apart),
  'undici, not wrapped': await undiciFetch(url, { method: 'POST', body: 'Hello' }).then((response) => response.text()),
};
server.closeAllConnections();
server.close();
console.log(seen);
assert.deepEqual(seen, {
  global: '200 Hello',
  undici: 'TypeError: Failed to parse URL from [object Request]',
  'node-fetch': 'TypeError: Invalid URL',
  apart: '200 Hello',
  'undici, not wrapped': 'Hello',
});
JS
node run.mjs
