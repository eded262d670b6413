import { connect } from 'node:net';

const LINE_FEED = 0x0a;

/**
 * Sends a JSON-RPC request, or a batch, to anvil's socket, and returns the text of its answer. anvil ends an answer with a
 * line feed, and gives none to who has ended the connection's other half.
 */
export function exchange(socketPath: string, request: unknown, timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    const chunks: Buffer[] = [];
    socket.on('data', (chunk) => {
      chunks.push(chunk);
      if (chunk.at(-1) !== LINE_FEED) return;
      resolve(Buffer.concat(chunks).toString());
      socket.destroy();
    });
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error('The local chain does not answer.')));
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('The local chain has closed the connection.')));
    socket.write(JSON.stringify(request));
  });
}
