#!/usr/bin/env bash
# ai 7.0.173 with @ai-sdk/openai 4.0.118: generateSpeech() sends a POST again after a 200 whose body broke off.
#
# A speech service that is paid per request has done its work by then: one call is up to three purchases. 409, 429 and 5xx
# are repeated too, and `x-should-retry: false`, which OpenAI's own client obeys, changes nothing. Other 4xx end the call.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund ai@7.0.173 @ai-sdk/openai@4.0.118
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createOpenAI } from '@ai-sdk/openai';
import { generateSpeech } from 'ai';

const refuse = (status) => (response) => {
  response.writeHead(status, { 'content-type': 'application/json', 'x-should-retry': 'false' });
  response.end(JSON.stringify({ error: { message: 'No.', type: 'refused', param: null, code: null } }));
};
const breakOff = (response) => {
  response.writeHead(200, { 'content-type': 'audio/mpeg', 'content-length': '4000' });
  response.write(Buffer.alloc(1000), () => response.destroy());
};
let answer;
let requests = 0;
const server = createServer((request, response) => {
  requests += 1;
  request.resume().on('end', () => answer(response));
}).listen(0, '127.0.0.1');
await once(server, 'listening');
const openai = createOpenAI({ apiKey: 'example', baseURL: `http://127.0.0.1:${server.address().port}/v1` });

const seen = {};
const answers = { 402: refuse(402), 409: refuse(409), 422: refuse(422), 429: refuse(429), 500: refuse(500), 'a 200 that breaks off': breakOff };
for (const [name, each] of Object.entries(answers)) {
  requests = 0;
  answer = each;
  await generateSpeech({ model: openai.speech('tts-1'), text: 'Hello' }).catch(() => undefined);
  seen[name] = requests;
}
server.close();
console.log('requests of one call', seen);
assert.deepEqual(seen, { 402: 1, 409: 3, 422: 1, 429: 3, 500: 3, 'a 200 that breaks off': 3 });
JS
node run.mjs
