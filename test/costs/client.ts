import { once } from 'node:events';
import { connect } from 'node:net';
import type { Test } from 'tap';
import { ResponseReader } from '../../bench/load/response-reader.ts';

export interface Client {
  /** Bytes that have come so far. */
  readonly received: number;
  /** Sends a whole request, and waits for the end of its answer; tells the status. */
  ask(request: Buffer): Promise<number>;
}

/** One connection that is kept. */
export async function openClient(t: Test, url: string): Promise<Client> {
  const socket = connect({ port: Number(new URL(url).port), host: '127.0.0.1', noDelay: true });
  await once(socket, 'connect');
  t.teardown(() => socket.destroy());
  let received = 0;
  let answered = (_status: number) => {};
  let failed = (_error: Error) => {};
  const reader = new ResponseReader((status) => answered(status));
  socket.on('data', (chunk) => {
    received += chunk.length;
    reader.push(chunk);
  });
  socket.on('close', () => failed(new Error('the gateway has closed the connection')));
  return {
    get received() {
      return received;
    },
    ask: (request) =>
      new Promise((resolve, reject) => {
        answered = resolve;
        failed = reject;
        socket.write(request);
      }),
  };
}
