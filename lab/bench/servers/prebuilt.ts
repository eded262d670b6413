import { createServer } from 'node:http';
import type { Sample } from '../targets/sample.ts';

// The floor for a challenge on node:http: the gateway's response from memory.
process.once('message', ({ status, headers, body }: Sample) => {
  const bytes = Buffer.from(body, 'base64');
  createServer((request, response) => {
    request.resume();
    response.writeHead(status, headers);
    response.end(bytes);
  }).listen(Number(process.env.PORT), '127.0.0.1', () => console.log('listens'));
});
