#!/usr/bin/env bash
# http-proxy-middleware 4.2.2: a chunked response that its origin resets ends as complete, an error message behind it.
#
# One would guess that the caller's connection breaks too, as it does with httpxy, on which this is built. But the
# default error handler, meant for an origin that gives no response, calls `response.end('Error occurred …')` in the
# middle of a 200 as well. The caller takes the audio and the text for all that there is, and neither complains nor
# repeats. With a Content-Length the text comes too, but the break is seen. The way out is `ejectPlugins: true` and an
# own error handler that destroys a response whose headers are sent.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund http-proxy-middleware@4.2.2 httpxy@0.5.6
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, get } from 'node:http';
import { createProxyMiddleware, proxyEventsPlugin } from 'http-proxy-middleware';
import { createProxyServer } from 'httpxy';

const servers = [];
async function listen(listener) {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  servers.push(server);
  return `http://127.0.0.1:${server.address().port}`;
}

// The origin resets the connection once the caller has the first part.
let reset;
const target = await listen((request, response) => {
  if (request.url === '/length') response.setHeader('content-length', 1000);
  response.write('first part');
  reset = () => response.socket.resetAndDestroy();
});
async function read(url) {
  const [response] = await once(get(url), 'response');
  let body = '';
  return new Promise((resolve) => {
    response.on('data', (chunk) => {
      if (body === '') reset();
      body += chunk;
    });
    response.on('error', () => {}).on('close', () => resolve({ whole: response.complete, body }));
  });
}

const error = (_error, _request, response) => {
  if (!response.headersSent) response.writeHead(502).end();
  else response.destroy();
};
const httpxy = createProxyServer({ target });
httpxy.on('error', () => {});
const byDefault = await listen(createProxyMiddleware({ target }));
const own = { target, ejectPlugins: true, plugins: [proxyEventsPlugin], on: { error } };
const seen = {
  'default, chunked': await read(byDefault),
  'default, with a length': await read(`${byDefault}/length`),
  'own handler, chunked': await read(await listen(createProxyMiddleware(own))),
  'httpxy alone, chunked': await read(await listen((request, response) => httpxy.web(request, response).catch(() => {}))),
};
for (const server of servers) server.close().closeAllConnections();
console.log(seen);
const { host } = new URL(byDefault);
assert.deepEqual(seen, {
  'default, chunked': { whole: true, body: `first partError occurred while trying to proxy: ${host}/` },
  'default, with a length': { whole: false, body: `first partError occurred while trying to proxy: ${host}/length` },
  'own handler, chunked': { whole: false, body: 'first part' },
  'httpxy alone, chunked': { whole: false, body: 'first part' },
});
JS
node run.mjs
