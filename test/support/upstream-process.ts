/**
 * A speech server as a program of its own, on PORT: half a second of MP3 for each text, a while after it was asked. A text
 * that begins with `Slowly` comes in two halves.
 */
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentMp3 } from './silent-audio.ts';

const AUDIO = silentMp3(480);
const HALF = AUDIO.subarray(0, AUDIO.length / 2);
const THINKS_MS = 15;

const server = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  if (request.method !== 'POST') {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"object":"list","data":[]}');
    return;
  }
  await sleep(THINKS_MS);
  response.writeHead(200, { 'content-type': 'audio/mpeg', 'content-length': AUDIO.length });
  if (JSON.parse(Buffer.concat(chunks).toString()).input.startsWith('Slowly')) {
    response.write(HALF);
    await sleep(THINKS_MS);
    response.end(AUDIO.subarray(HALF.length));
  } else {
    response.end(AUDIO);
  }
});
server.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('speaks'));
