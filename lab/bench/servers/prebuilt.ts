import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { TEXT } from '../world.ts';

// The floor for a challenge on node:http: the gateway's response from memory, without headers that Node.js adds itself.
const ADDED = ['connection', 'date', 'keep-alive', 'transfer-encoding'];
const POLL_MS = 100;

const sample = await challenge();
const headers = Object.fromEntries([...sample.headers].filter(([name]) => !ADDED.includes(name)));
const bytes = Buffer.from(await sample.arrayBuffer());

createServer((request, response) => {
  request.resume();
  response.writeHead(sample.status, headers);
  response.end(bytes);
}).listen(Number(process.env.PORT), '127.0.0.1');

/** Waits for the gateway, which starts at the same time. */
async function challenge(): Promise<Response> {
  const order = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: TEXT }),
  };
  for (;;) {
    const answer = await fetch(`${process.env.GATEWAY_ORIGIN}/x402/tts`, order).catch(() => undefined);
    if (answer?.status === 402) return answer;
    await sleep(POLL_MS);
  }
}
