/**
 * A speech server as a process on PORT. It sends `speechOf` each text after a few milliseconds, slow texts in four
 * chunks.
 */
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { SLOWLY, speechOf } from './speech.ts';

const THINKS_MS = 10;
const PIECES = 4;
const PIECE_MS = 150;

const server = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  if (request.method !== 'POST') {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"object":"list","data":[]}');
    return;
  }
  const text: string = JSON.parse(Buffer.concat(chunks).toString()).input;
  const audio = speechOf(text);
  await sleep(THINKS_MS);
  if (!text.startsWith(SLOWLY)) {
    response.writeHead(200, { 'content-type': 'audio/mpeg', 'content-length': audio.length }).end(audio);
    return;
  }
  response.writeHead(200, { 'content-type': 'audio/mpeg' });
  const size = Math.ceil(audio.length / PIECES);
  for (let at = 0; at < audio.length; at += size) {
    response.write(audio.subarray(at, at + size));
    await sleep(PIECE_MS);
  }
  response.end();
});
server.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('speaks'));
