#!/usr/bin/env bash
# openai 7.59.0: Retry-After above 60 seconds makes the client come back sooner than Retry-After 3 does.
#
# Values up to 60 are obeyed. A longer one is ignored, and the default backoff of about half a second applies: a service that
# asks for a pause of two minutes gets both repetitions within two seconds. Only `x-should-retry: false` ends them.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund openai@7.59.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import OpenAI from 'openai';

let headers;
let times = [];
const server = createServer((request, response) => {
  times.push(performance.now());
  request.resume().on('end', () => {
    response.writeHead(429, { 'content-type': 'application/json', ...headers });
    response.end(JSON.stringify({ error: { message: 'Later.' } }));
  });
}).listen(0, '127.0.0.1');
await once(server, 'listening');
const client = new OpenAI({ apiKey: 'example', baseURL: `http://127.0.0.1:${server.address().port}/v1`, maxRetries: 1 });

async function pause(given) {
  headers = given;
  times = [];
  await client.audio.speech.create({ model: 'tts-1', voice: 'alloy', input: 'Hello' }).catch(() => undefined);
  return times.length === 1 ? undefined : (times[1] - times[0]) / 1000;
}
const three = await pause({ 'retry-after': '3' });
const long = await pause({ 'retry-after': '120' });
const final = await pause({ 'retry-after': '120', 'x-should-retry': 'false' });
server.close();
console.log({ 'seconds after 3': three, 'seconds after 120': long, 'after 120 and x-should-retry: false': final });
assert.ok(three >= 2.9, 'a short Retry-After is obeyed');
assert.ok(long < three, 'a long one is not');
assert.equal(final, undefined, 'no repetition');
JS
node run.mjs
